// octavo-probe: looks at one HDF5 file for octavod, which starts it, and may crash on it in
// octavod's place (server/storage/projections/hdf5_probe.h). Asked on standard input, answers on
// standard output.

#include "server/storage/projections/hdf5_probe.h"

int main() { return octavo::storage::AnswerHdf5Probe(); }

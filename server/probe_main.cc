// octavo-probe: octavod starts it to open one HDF5 file first, so that a crash hits this process
// instead (server/storage/projections/hdf5_probe.h). It reads the request from standard input and
// writes the answer to standard output.

#include "server/storage/projections/hdf5_probe.h"

int main() { return octavo::storage::AnswerHdf5Probe(); }

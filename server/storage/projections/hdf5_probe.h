#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/unique_fd.h"
#include "server/storage/projections/projection_input.h"

// The HDF5 library trusts what it reads: a damaged file can crash it, and with it the process and
// all that the process holds. So a server has each file opened by another process first, which does
// all that opening does and reads the first and the last frame of each kind; only what that process
// has survived is opened in this one.
namespace octavo::storage {

struct Hdf5Probe {
  std::vector<std::string>
      command;  // the program (octavo-probe) and its arguments; empty = files are opened at once
  double seconds = 30;                      // a look may take, by the clock
  int64_t processor_seconds = 20;           // and of processor time
  int64_t memory_bytes = int64_t{4} << 30;  // address space: what a compressed chunk may grow to
};

/// From now on OpenProjections has HDF5 files looked at so. Once, at the start of a server.
void UseHdf5Probe(Hdf5Probe probe);

/// Has an open file, which had the name `path`, looked at, and waits. OK: it may be opened here
/// (also where nothing looks, or the program could not be started, which is logged once). Else the
/// error that opening it would have given, or DataLoss DAMAGED_FILE where it takes more than the
/// limits, or the other process crashed on it, which is logged. Any thread; holds no lock; at most
/// a few of them at once.
absl::Status ProbeHdf5(const UniqueFd& file, const std::string& path,
                       const ProjectionOptions& options);

/// What the other process does: reads what is asked for from standard input, looks at the file that
/// it has as kProbedFile, writes to standard output. Its exit status.
int AnswerHdf5Probe();

}  // namespace octavo::storage

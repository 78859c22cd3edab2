#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/unique_fd.h"
#include "server/storage/projections/projection_input.h"

// The HDF5 library trusts the data that it reads: a damaged file can crash it, and with it the
// process and everything in its memory. Therefore another process opens each file first, exactly as
// the server would, and reads the first and the last frame of each kind. The server opens only
// files that this process has survived. Without the program it opens none: a server that is
// installed in part would otherwise fall to the first such file, and no setting allows that. Files
// of other formats, which the server decodes itself, are read all the same.
namespace octavo::storage {

struct Hdf5Probe {
  // The program (octavo-probe) and its arguments; empty = no probe, and files are opened without.
  std::vector<std::string> command;
  double seconds = 30;             // limit of a probe, wall-clock time
  int64_t processor_seconds = 20;  // limit of its processor time
  // address space, which limits the size of a decompressed chunk
  int64_t memory_bytes = int64_t{4} << 30;
};

/// From now on OpenProjections probes HDF5 files. Called once, when a server starts.
void UseHdf5Probe(Hdf5Probe probe);

/// Whether the program is there and may be started; FailedPrecondition says where it was looked
/// for. OK if probing is off. For the start of a server and for what it tells of itself.
absl::Status CheckHdf5Probe();

/// Probes an open file, which had the name `path`, and waits. OK: this process may open it (also if
/// probing is off, as in programs of the user, which end alone). Else the error that opening it
/// would have given; DataLoss DAMAGED_FILE if the file exceeds the limits or crashed the other
/// process, which is logged; FailedPrecondition if the program cannot be started, which is logged
/// once; ResourceExhausted if there is nothing to start it with. Any thread; holds no lock; at most
/// a few probes run at once.
absl::Status ProbeHdf5(const UniqueFd& file, const std::string& path,
                       const ProjectionOptions& options);

/// What is opened of a file that holds a volume.
struct Hdf5VolumeRequest {
  std::string dataset;             // "" = the one that a commit wrote
  std::vector<std::string> roots;  // folders in which other files may lie
};

/// The same for a volume, whose corners are read: VolumeInputOptions::probe_hdf5.
absl::Status ProbeHdf5Volume(const UniqueFd& file, const std::string& path,
                             const Hdf5VolumeRequest& request);

/// The body of the other process: reads the request from standard input, probes the file that it
/// has as kProbedFile, writes the answer to standard output. Returns its exit status.
int AnswerHdf5Probe();

}  // namespace octavo::storage

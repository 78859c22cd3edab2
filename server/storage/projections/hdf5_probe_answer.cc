// The part of the probe (hdf5_probe.h) that may crash.

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <new>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/formats/volume_input.h"
#include "server/storage/io/files.h"
#include "server/storage/projections/hdf5_probe.h"
#include "server/storage/projections/hdf5_probe_wire.h"
#include "server/storage/projections/internal.h"

namespace octavo::storage {
namespace {

void Limit(decltype(RLIMIT_CORE) what, int64_t most) {
  rlimit limit{};
  if (::getrlimit(what, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(most));
  ::setrlimit(what, &limit);
}

void Confine(const ProbeRequest& request) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // without the server, no process reads the answer
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_CPU, request.processor_seconds);
  Limit(RLIMIT_STACK, 4 << 20);  // smaller than the stack of the server's threads
#ifndef OCTAVO_SANITIZED         // which take terabytes of it
  Limit(RLIMIT_AS, request.memory_bytes);
#endif
  // If the machine runs out of memory, the kernel shall kill this process, not the server.
  if (const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); fd >= 0) {
    [[maybe_unused]] const ssize_t ignored = ::write(fd, "900", 3);
    ::close(fd);
  }
}

absl::Status TooLarge(const ProbeRequest& request, const std::string& dataset) {
  return DamagedProjections(
      request.path, dataset,
      absl::StrCat("takes more than ", request.memory_bytes >> 20, " MiB of memory to read"));
}

/// Reads the first and the last frame of each kind. The job itself reports unreadable frames, but a
/// frame that would use up all memory must be found here.
absl::Status ReadEnds(const ProbeRequest& request, ProjectionInput& input) {
  const ProjectionInfo& info = input.info();
  std::vector<float> row(static_cast<size_t>(info.columns));  // of any type that is read
  for (const FrameKind kind : {FrameKind::kProjection, FrameKind::kFlat, FrameKind::kDark}) {
    for (const bool last : {false, true}) {
      if (info.frames(kind) == 0) continue;
      const ProjectionBox box{.kind = kind,
                              .first_frame = last ? info.frames(kind) - 1 : 0,
                              .frames = 1,
                              .first_row = last ? info.rows - 1 : 0,
                              .rows = 1,
                              .columns = info.columns};
      errno = 0;
      if (input.Read(box, row.data()).ok() || errno != ENOMEM) continue;
      return TooLarge(request, absl::StrCat("a chunk of the ", Name(kind), "s"));
    }
  }
  return absl::OkStatus();
}

/// Opens a volume and reads the element at each end.
absl::Status LookAtVolume(const ProbeRequest& request) {
  VolumeInputOptions options{.format = InputFormat::kHdf5};
  options.dataset = request.volume->dataset;
  options.roots = request.volume->roots;
  // The whole path: files that it links to lie beside it.
  const auto input = OpenVolumeInput(UniqueFd(kProbedFile), request.path, options);
  if (!input.ok() && errno == ENOMEM) return TooLarge(request, "the file");
  OCTAVO_RETURN_IF_ERROR(input.status());
  const VolumeInputInfo& info = (*input)->info();
  std::vector<char> element(static_cast<size_t>(info.type.bytes));
  for (const bool last : {false, true}) {
    base::ArrayBox box;
    for (const int64_t extent : info.shape()) {
      box.start.push_back(last ? extent - 1 : 0);
      box.count.push_back(1);
    }
    errno = 0;
    if (!(*input)->Read(box, absl::MakeSpan(element)).ok() && errno == ENOMEM)
      return TooLarge(request, "a chunk");
  }
  return absl::OkStatus();
}

absl::Status Look(const ProbeRequest& request) try {
  errno = 0;
  if (request.volume.has_value()) return LookAtVolume(request);
  const UniqueFd file(kProbedFile);
  const auto input = OpenHdf5Projections(file, request.path, request.options);
  if (!input.ok() && errno == ENOMEM) return TooLarge(request, "the file");
  OCTAVO_RETURN_IF_ERROR(input.status());
  return ReadEnds(request, **input);
} catch (const std::bad_alloc&) {
  return TooLarge(request, "the file");
}

std::string ReadAll(int fd) {
  std::string all;
  char part[65536];
  for (ssize_t n; (n = ::read(fd, part, sizeof part)) != 0;) {
    if (n > 0) all.append(part, static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  return all;
}

}  // namespace

int AnswerHdf5Probe() {
  const auto request = DecodeRequest(ReadAll(STDIN_FILENO));
  if (!request.has_value()) return kProbeNotStarted;
  Confine(*request);
  const std::string answer = EncodeAnswer(Look(*request));
  for (size_t at = 0; at < answer.size();) {
    const ssize_t n = ::write(STDOUT_FILENO, answer.data() + at, answer.size() - at);
    if (n < 0 && errno != EINTR) return 1;
    if (n > 0) at += static_cast<size_t>(n);
  }
  return 0;
}

}  // namespace octavo::storage

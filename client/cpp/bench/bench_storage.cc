// octavo bench storage: files of the server's storage into device memory, through imports.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <thread>
#include <unistd.h>
#include <utility>
#include <zstd.h>

#include "octavo/v1/ingest.grpc.pb.h"
#include "octavo/v1/job.grpc.pb.h"
#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/bench/bench.h"
#include "client/cpp/cli/long_work.h"
#include "client/cpp/cli/words.h"
#include "gpu/math/digest.h"

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;
constexpr int kReaders = 16;
constexpr int64_t kBlock = 1 << 20;
constexpr uint32_t kRows = 512;

/// The files, removed with the object.
class BenchFolder {
 public:
  explicit BenchFolder(const std::string& root)
      : path_(fs::path(root) / ("octavo-bench-storage-" + std::to_string(::getpid()))) {
    std::error_code error;
    made_ = fs::create_directory(path_, error);
  }
  ~BenchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  BenchFolder(const BenchFolder&) = delete;
  bool made() const { return made_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  const fs::path path_;
  bool made_ = false;
};

/// Removes what lies below a path from the page cache, as far as the kernel does.
void Evict(const fs::path& path) {
  const auto evict = [](const fs::path& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)::fdatasync(fd);
    (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  };
  std::error_code error;
  if (!fs::is_directory(path, error)) return evict(path);
  for (const auto& entry : fs::recursive_directory_iterator(path, error)) {
    if (entry.is_regular_file(error)) evict(entry.path());
  }
}

/// Whole rows of 512 x 512 voxels u16 that compress to about a half, as an .npy. Returns their
/// digest as volumes have it; empty: it could not be written.
std::string WriteNpy(const fs::path& path, uint32_t planes) {
  std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (" +
                       std::to_string(planes) + ", 512, 512), }";
  header.resize(117, ' ');
  std::ofstream file(path, std::ios::binary);
  file << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << header << "\n";
  std::mt19937_64 random(std::random_device{}());
  std::vector<uint16_t> plane(kRows * kRows);
  uint64_t sum = 0, index = 0;
  for (uint32_t i = 0; i < planes; ++i) {
    for (size_t v = 0; v < plane.size(); v += 8) {
      const uint64_t bits = random();
      for (size_t k = 0; k < 8; ++k)
        plane[v + k] = static_cast<uint16_t>(20'000 + v / kRows * 8 + (bits >> 8 * k & 255));
    }
    for (size_t v = 0; v < plane.size(); v += 4) {
      uint64_t word = 0;
      std::memcpy(&word, plane.data() + v, sizeof word);
      sum += math::DigestWord(word, index++);
    }
    file.write(reinterpret_cast<const char*>(plane.data()),
               static_cast<std::streamsize>(plane.size() * sizeof(uint16_t)));
  }
  file.close();
  char text[32];
  std::snprintf(text, sizeof text, "sum64:%016llx", static_cast<unsigned long long>(sum));
  return file.good() ? text : "";
}

/// GB/s of a file into this process' memory, by several threads in blocks of 1 MiB; 0 if it cannot
/// be read so.
double HostRead(const fs::path& path, bool direct) {
  Evict(path);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(path, error)) / kBlock * kBlock;
  if (fd < 0) return 0;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  const int64_t began = MonotonicNs();
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kReaders; ++t) {
      threads.emplace_back([&] {
        const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(4096, kBlock),
                                                            &std::free);
        for (int64_t at; (at = next.fetch_add(kBlock)) < size;)
          failed = failed || ::pread(fd, memory.get(), kBlock, at) != kBlock;
      });
    }
  }
  const double ns = static_cast<double>(MonotonicNs() - began);
  ::close(fd);
  return failed ? 0 : static_cast<double>(size) / ns;
}

/// GB/s that as many threads as there are cores decode of the chunks of a commit, which are in
/// memory. Sets the bytes of the chunks and of what they become. 0: one does not decode.
double DecodeInMemory(const fs::path& folder, int64_t* encoded, int64_t* decoded) {
  std::vector<std::string> chunks;
  std::error_code error;
  *encoded = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
    // Of the full resolution: "0/c/...".
    if (!entry.is_regular_file(error) || entry.path().string().find("/0/c/") == std::string::npos)
      continue;
    std::ifstream file(entry.path(), std::ios::binary);
    chunks.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    *encoded += std::ssize(chunks.back());
  }
  std::atomic<size_t> next{0};
  std::atomic<int64_t> sum{0};
  const int64_t began = MonotonicNs();
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < std::thread::hardware_concurrency(); ++t) {
      threads.emplace_back([&] {
        std::string out;
        for (size_t i; (i = next++) < chunks.size();) {
          const auto size = ZSTD_getFrameContentSize(chunks[i].data(), chunks[i].size());
          if (size > (1ull << 30)) return;
          out.resize(std::max<size_t>(out.size(), size));
          const size_t n =
              ZSTD_decompress(out.data(), out.size(), chunks[i].data(), chunks[i].size());
          if (ZSTD_isError(n) == 0) sum += static_cast<int64_t>(n);
        }
      });
    }
  }
  *decoded = sum;
  return chunks.empty() ? 0 : static_cast<double>(sum) / static_cast<double>(MonotonicNs() - began);
}

/// GB/s of the server's upload link, which it measures itself.
double UploadLink(Session& session) {
  v1::MeasureRequest request;
  request.mutable_duration()->set_nanos(100'000'000);
  grpc::ClientContext context;
  auto reader = v1::SystemService::NewStub(session.channel())->Measure(&context, request);
  double link = 0;
  for (v1::MeasureResponse answer; link == 0 && reader->Read(&answer);) {
    if (answer.measurement().figure() == v1::Measurement::FIGURE_UPLOAD)
      link = answer.measurement().value();
  }
  context.TryCancel();
  (void)reader->Finish();
  return link;
}

struct Imported {
  v1::Volume volume;
  double seconds = 0;  // of the job
};

class StorageBench {
 public:
  StorageBench(Session& session, BenchReport& report) : session_(session), report_(report) {}

  /// A held volume of a file, or nothing after a message.
  std::optional<Imported> Import(const fs::path& path, bool described) {
    v1::ImportVolumeRequest request;
    auto& work = *request.mutable_volume_import();
    work.set_path(path.string());
    if (!described) {
      for (const char* axis : {"z", "y", "x"}) work.add_axes(axis);
      work.set_allow_unknown_spacing(true);
    }
    grpc::ClientContext context;
    v1::ImportVolumeResponse answer;
    const auto channel = session_.channel();
    if (!Check(session_,
               v1::IngestService::NewStub(channel)->ImportVolume(&context, request, &answer)) ||
        !Check(session_, StatusOf(answer.operation())))
      return std::nullopt;
    v1::GetJobRequest of_job;
    of_job.set_name(answer.operation().target());
    v1::GetJobResponse job;
    if (!Check(session_,
               v1::JobService::NewStub(channel)->GetJob(session_.Context().get(), of_job, &job)))
      return std::nullopt;
    v1::GetVolumeRequest of_volume;
    of_volume.set_name(answer.operation().volumes(0));
    v1::GetVolumeResponse volume;
    if (!Check(session_, v1::VolumeService::NewStub(channel)->GetVolume(session_.Context().get(),
                                                                        of_volume, &volume)))
      return std::nullopt;
    const auto at = [](const google::protobuf::Timestamp& time) {
      return static_cast<double>(time.seconds()) + static_cast<double>(time.nanos()) * 1e-9;
    };
    return Imported{.volume = volume.volume(),
                    .seconds = at(job.job().end_time()) - at(job.job().start_time())};
  }

  /// Imports a file three times cold and three times warm, and reports both.
  void Measure(const std::string& name, const fs::path& path, bool described,
               const std::string& digest, double cold_ceiling, const std::string& cold_name,
               double warm_ceiling, const std::string& warm_name) {
    for (const bool cold : {true, false}) {
      std::vector<double> rates;
      for (int round = 0; round < 3; ++round) {
        if (cold) Evict(path);
        const auto made = Import(path, described);
        if (!made.has_value()) return report_.Refuse(name, "the import failed");
        const int64_t bytes = made->volume.bytes();
        const bool same = made->volume.digest() == digest;
        Discard(session_, made->volume.name());
        if (!same) return report_.Refuse(name, "the volume has other voxels than the file");
        rates.push_back(static_cast<double>(bytes) / made->seconds * 1e-9);
      }
      report_.Add({.name = name + (cold ? ", cold" : ", warm"),
                   .included = "a job: the file opened, read into the device, its digest and MIP",
                   .unit = "GB/s",
                   .ceiling_name = cold ? cold_name : warm_name,
                   .verified = "the digest of every volume",
                   .value = Percentile(rates, 50),
                   .ceiling = cold ? cold_ceiling : warm_ceiling});
    }
  }

  bool Commit(const std::string& volume, const fs::path& to, v1::Codec codec) {
    v1::CommitVolumeRequest request;
    request.set_name(volume);
    request.mutable_options()->set_destination(to.string());
    request.mutable_options()->set_format(v1::FORMAT_OME_ZARR_05);
    request.mutable_options()->set_codec(codec);
    grpc::ClientContext context;
    v1::CommitVolumeResponse answer;
    return Check(session_, v1::VolumeService::NewStub(session_.channel())
                               ->CommitVolume(&context, request, &answer)) &&
           Check(session_, StatusOf(answer.operation()));
  }

 private:
  Session& session_;
  BenchReport& report_;
};

}  // namespace

void BenchStorage(Session& session, const BenchFlags& flags, BenchReport& report) {
  static constexpr const char kName[] = "storage";
  v1::GetInfoResponse info;
  auto system = v1::SystemService::NewStub(session.channel());
  if (!Check(session, system->GetInfo(session.Context().get(), {}, &info))) return;
  const auto root = std::find_if(info.storage().begin(), info.storage().end(), [](const auto& one) {
    return one.mode() == v1::GetInfoResponse::StorageRoot::MODE_READ_WRITE;
  });
  if (root == info.storage().end())
    return report.Refuse(kName, "the server has no storage root where it may write");
  const BenchFolder folder(root->path());
  if (!folder.made())
    return report.Refuse(
        kName, "the server's storage (" + root->path() + ") is not here, or not to be written");
  const fs::path plain = folder / "plain.npy";
  const std::string digest = WriteNpy(plain, static_cast<uint32_t>(flags.mib) * 2);
  if (digest.empty()) return report.Refuse(kName, plain.string() + " cannot be written");
  const double link = UploadLink(session);
  const double buffered = HostRead(plain, false), direct = HostRead(plain, true);
  const auto plainly = [&](const char* name, double value, const char* included) {
    if (value > 0)
      report.Add({.name = name,
                  .included = included,
                  .unit = "GB/s",
                  .ceiling_name = "",
                  .verified = "whole blocks",
                  .value = value});
  };
  plainly("file into host memory, buffered, cold", buffered, "16 threads, blocks of 1 MiB");
  plainly("file into host memory, O_DIRECT, cold", direct, "16 threads, blocks of 1 MiB");
  plainly("upload link", link, "as the server measures it");
  const double drive = std::max(buffered, direct), least = link > 0 ? std::min(drive, link) : drive;
  const std::string least_name = least == drive ? "the drive" : "the upload link";
  v1::ProbeStorageRequest probe;
  probe.set_root(root->path());
  probe.set_bytes(std::clamp<int64_t>(flags.mib << 20, 16 << 20, int64_t{16} << 30));
  v1::ProbeStorageResponse probed;
  grpc::ClientContext context;
  if (!Check(session, system->ProbeStorage(&context, probe, &probed)))
    return report.Refuse(kName, "the storage could not be measured");
  const v1::StorageBackend& backend = probed.backend();
  for (const auto& [name, value] :
       {std::pair{"file into the device, buffered, cold", backend.buffered_bytes_per_s()},
        {"file into the device, O_DIRECT, cold", backend.direct_bytes_per_s()},
        {"file into the device, cuFile, cold", backend.cufile_bytes_per_s()}}) {
    if (value == 0) continue;
    report.Add({.name = name,
                .included = "octavo storage probe",
                .unit = "GB/s",
                .ceiling_name = least_name,
                .verified = "a digest",
                .value = value * 1e-9,
                .ceiling = least});
  }
  report.Note("The server reads this storage " +
              (backend.kind() == v1::STORAGE_BACKEND_KIND_UNSPECIFIED
                   ? std::string("buffered")
                   : std::string(InWords(backend.kind()))) +
              ": " + backend.reason() +
              (backend.cufile().empty() ? "" : "; not by cuFile: " + backend.cufile()) + "\n");
  StorageBench bench(session, report);
  bench.Measure("import .npy", plain, false, digest, least, least_name, link, "the upload link");
  const auto held = bench.Import(plain, false);
  if (!held.has_value()) return report.Refuse("import OME-Zarr", "there is no volume to commit");
  const fs::path raw = folder / "raw.ome.zarr", zstd = folder / "zstd.ome.zarr";
  // A volume is committed once, so the second commit is of what came back of the first.
  if (!bench.Commit(held->volume.name(), raw, v1::CODEC_NONE))
    return report.Refuse("import OME-Zarr", "the commit failed");
  bench.Measure("import raw OME-Zarr", raw, true, digest, least, least_name, link,
                "the upload link");
  const auto again = bench.Import(raw, true);
  if (!again.has_value() || !bench.Commit(again->volume.name(), zstd, v1::CODEC_ZSTD))
    return report.Refuse("import zstd OME-Zarr", "the commit failed");
  int64_t encoded = 0, decoded = 0;
  const double decode = DecodeInMemory(zstd, &encoded, &decoded);
  if (decode == 0 || encoded == 0) return report.Refuse("import zstd OME-Zarr", "no chunk decodes");
  plainly("zstd decoded in memory", decode, "all cores of this host, the chunks of the commit");
  const double ratio = static_cast<double>(decoded) / static_cast<double>(encoded),
               cold = std::min(decode, drive * ratio);
  bench.Measure("import zstd OME-Zarr", zstd, true, digest, cold,
                cold == decode ? "decoding in memory" : "the drive", decode, "decoding in memory");
}

}  // namespace octavo::cli

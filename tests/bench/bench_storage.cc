// Files into device memory: every way, cold and warm, beside what the drive reads into host memory,
// what the link to the device takes, and what the same cores decode in memory. No daemon.
//   bench_storage --directory DIR [--mib 1024] [--backend auto] [--rounds 3] [--only
//   plain|zarr|zstd]
//                 [--cufile compat] [--library libcufile.so.0] [--keep 1]
// --cufile compat lets cuFile copy through host memory: for its ABI and its bytes, not for its
// speed. Prints a JSON object for each figure, then a table. Every figure's bytes are compared by
// their digest. Cold: the file was removed from the page cache before; on a file system that keeps
// it (tmpfs), cold is warm.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>
#include <zstd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "tbb/info.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/status.h"
#include "gpu/device/digest.h"
#include "server/storage/direct/device_reader.h"
#include "server/storage/formats/input_volume.h"
#include "server/storage/formats/volume_input.h"
#include "tests/bench/bench_basics.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using storage::ReadWay;

using bench::Die;

template <class T>
T Must(absl::StatusOr<T> made, const char* what) {
  if (!made.ok()) Die(absl::StrCat(what, ": ", made.status().ToString()));
  return *std::move(made);
}
void Must(const absl::Status& status, const char* what) {
  if (!status.ok()) Die(absl::StrCat(what, ": ", status.ToString()));
}
double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Options {
  std::string directory, backend = "auto", only, cufile, library = "libcufile.so.0";
  int64_t mib = 1024;
  int rounds = 3;
  bool keep = false;
};

struct Row {
  std::string what, ceiling_name;
  double value = 0, ceiling = 0;  // bytes per second
};

/// Removes what lies below a path from the page cache.
void Evict(const fs::path& path) {
  const auto evict = [](const fs::path& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)::fdatasync(fd);
    (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  };
  if (!fs::is_directory(path)) return evict(path);
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) evict(entry.path());
  }
}

/// A volume [planes, 512, 512] of u16 whose numbers compress to about a half, as those of OCT do.
std::vector<uint16_t> MakeVoxels(int64_t planes) {
  std::vector<uint16_t> voxels(static_cast<size_t>(planes * 512 * 512));
  std::vector<std::jthread> threads;
  const size_t part = (voxels.size() + 15) / 16;
  for (size_t t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (size_t i = t * part; i < std::min(voxels.size(), (t + 1) * part); ++i) {
        const uint64_t bits = random();
        voxels[i] = static_cast<uint16_t>(20'000 + (i / 512 % 512) * 8 + (bits & 255));
      }
    });
  }
  threads.clear();
  return voxels;
}

constexpr int64_t kRows = 512, kColumns = 512;

void WriteFile(const fs::path& path, const void* data, size_t bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  if (!file.good()) Die(absl::StrCat(path.string(), " cannot be written"));
}

void WriteNpy(const fs::path& path, const std::vector<uint16_t>& voxels, int64_t planes) {
  std::string header =
      absl::StrCat("{'descr': '<u2', 'fortran_order': False, 'shape': (", planes, ", 512, 512), }");
  header.resize(117, ' ');
  std::string bytes = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n";
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.write(reinterpret_cast<const char*>(voxels.data()),
             static_cast<std::streamsize>(voxels.size() * 2));
  if (!file.good()) Die(absl::StrCat(path.string(), " cannot be written"));
}

/// An array of Zarr v3 with cubes of `side` samples as chunks; zstd of level 1 or raw. Returns the
/// bytes of its files.
int64_t WriteZarr(const fs::path& folder, const std::vector<uint16_t>& voxels, int64_t planes,
                  int64_t side, bool compressed, bool big_endian) {
  fs::create_directories(folder);
  nlohmann::json codecs = {
      {{"name", "bytes"}, {"configuration", {{"endian", big_endian ? "big" : "little"}}}}};
  if (compressed)
    codecs.push_back({{"name", "zstd"}, {"configuration", {{"level", 1}, {"checksum", false}}}});
  const nlohmann::json meta = {
      {"zarr_format", 3},
      {"node_type", "array"},
      {"shape", {planes, kRows, kColumns}},
      {"data_type", "uint16"},
      {"chunk_grid",
       {{"name", "regular"}, {"configuration", {{"chunk_shape", {side, side, side}}}}}},
      {"chunk_key_encoding", {{"name", "default"}, {"configuration", {{"separator", "/"}}}}},
      {"fill_value", 0},
      {"codecs", codecs}};
  const std::string text = meta.dump();
  WriteFile(folder / "zarr.json", text.data(), text.size());
  std::atomic<int64_t> written{0}, next{0};
  const int64_t across = kRows / side, all = (planes + side - 1) / side * across * across;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      std::vector<uint16_t> chunk(static_cast<size_t>(side * side * side));
      std::vector<char> encoded(ZSTD_compressBound(chunk.size() * 2));
      for (int64_t i; (i = next++) < all;) {
        const int64_t z = i / (across * across), y = i / across % across, x = i % across;
        for (int64_t a = 0; a < side; ++a) {
          for (int64_t b = 0; b < side; ++b) {
            uint16_t* const row = chunk.data() + (a * side + b) * side;
            if (z * side + a >= planes)
              std::memset(row, 0, static_cast<size_t>(side * 2));
            else
              std::memcpy(
                  row,
                  voxels.data() + ((z * side + a) * kRows + y * side + b) * kColumns + x * side,
                  static_cast<size_t>(side * 2));
          }
        }
        if (big_endian)
          for (uint16_t& v : chunk) v = static_cast<uint16_t>(v << 8 | v >> 8);
        const fs::path file = folder / "c" / std::to_string(z) / std::to_string(y);
        fs::create_directories(file);
        size_t bytes = chunk.size() * 2;
        const void* data = chunk.data();
        if (compressed) {
          bytes = ZSTD_compress(encoded.data(), encoded.size(), chunk.data(), bytes, 1);
          data = encoded.data();
        }
        WriteFile(file / std::to_string(x), data, bytes);
        written += static_cast<int64_t>(bytes);
      }
    });
  }
  threads.clear();
  return written;
}

enum class Cache { kWarm, kCold };

/// What 16 threads read of a file into host memory, in blocks of 1 MiB, as fio does.
double HostRead(const fs::path& path, bool direct, Cache cache) {
  if (cache == Cache::kCold) Evict(path);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
  if (fd < 0) return 0;
  constexpr int64_t kBlock = 1 << 20;
  const auto size = static_cast<int64_t>(fs::file_size(path)) / kBlock * kBlock;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  const double begun = Now();
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 16; ++t) {
      threads.emplace_back([&] {
        void* const memory = std::aligned_alloc(4096, kBlock);
        for (int64_t at; (at = next.fetch_add(kBlock)) < size;) {
          if (::pread(fd, memory, kBlock, at) != kBlock) failed = true;
        }
        std::free(memory);
      });
    }
  }
  const double seconds = Now() - begun;
  ::close(fd);
  return failed ? 0 : static_cast<double>(size) / seconds;
}

/// What the same number of threads decode of files that are in memory.
double DecodeInMemory(const fs::path& folder, int64_t side) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "c")) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  const auto chunk = static_cast<size_t>(side * side * side * 2);
  std::atomic<size_t> next{0};
  const double begun = Now();
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < tbb::info::default_concurrency(); ++t) {
      threads.emplace_back([&] {
        std::vector<char> out(chunk);
        ZSTD_DCtx* const context = ZSTD_createDCtx();
        for (size_t i; (i = next++) < files.size();) {
          if (ZSTD_decompressDCtx(context, out.data(), out.size(), files[i].data(),
                                  files[i].size()) != chunk)
            Die("a chunk does not decode");
        }
        ZSTD_freeDCtx(context);
      });
    }
  }
  return static_cast<double>(files.size() * chunk) / (Now() - begun);
}

class Bench {
 public:
  Bench(const Options& options, Device& device)
      : options_(options),
        device_(device),
        stream_(Must(device.NewStream(StreamPriority::kNormal), "a stream")),
        folder_(fs::path(options.directory) / absl::StrCat("octavo-bench-storage-", ::getpid())) {
    fs::create_directories(folder_);
  }
  ~Bench() {
    std::error_code ignored;
    if (!options_.keep) fs::remove_all(folder_, ignored);
  }

  void Run() {
    cufile_ = storage::CuFile::Open({.library = options_.library,
                                     .check_host = options_.cufile != "compat",
                                     .allow_compat = options_.cufile == "compat"});
    const bool gpu = device_.info().backend != "host" || options_.library != "libcufile.so.0";
    std::cout << nlohmann::json({{"cufile", gpu && cufile_->usable() ? cufile_->version() : "no"},
                                 {"why", gpu ? cufile_->refusal().text : "the device is no GPU"},
                                 {"device", device_.info().model}})
                     .dump()
              << std::endl;
    if (!gpu) cufile_.reset();
    const int64_t planes = options_.mib * 2;  // of half a MiB each
    const std::vector<uint16_t> voxels = MakeVoxels(planes);
    bytes_ = static_cast<int64_t>(voxels.size()) * 2;
    digest_ = DigestBytes(voxels.data(), bytes_, 0);
    out_ = Must(device_.Allocate(bytes_), "device memory");
    const double link = MeasureLink();
    Add({.what = "upload link", .ceiling_name = "", .value = link});
    const fs::path plain = folder_ / "plain.npy";
    WriteNpy(plain, voxels, planes);
    const double warm = Best([&] { return HostRead(plain, false, Cache::kWarm); }),
                 buffered = Best([&] { return HostRead(plain, false, Cache::kCold); }),
                 direct = Best([&] { return HostRead(plain, true, Cache::kCold); });
    Add({.what = "into host memory, from the page cache", .ceiling_name = "", .value = warm});
    Add({.what = "into host memory, buffered, cold", .ceiling_name = "", .value = buffered});
    Add({.what = "into host memory, O_DIRECT, cold", .ceiling_name = "", .value = direct});
    const double drive = std::max(buffered, direct), least = std::min(drive, link);
    const std::string cold_name = drive < link ? "the drive" : "the link",
                      warm_name = warm < link ? "the page cache" : "the link";
    const auto each_way = [&](const std::string& name, const fs::path& path) {
      for (const ReadWay way : {ReadWay::kBuffered, ReadWay::kDirect, ReadWay::kCufile}) {
        if (way == ReadWay::kCufile && (cufile_ == nullptr || !cufile_->usable())) continue;
        for (const bool cold : {true, false}) {
          // Warm, only the page cache is of interest: the others would pass it by.
          if (!cold && way != ReadWay::kBuffered) continue;
          Add({.what = absl::StrCat(name, ", ", Name(way), cold ? ", cold" : ", warm"),
               .ceiling_name = cold ? cold_name : warm_name,
               .value = Best([&] { return ReadOnce(path, way, cold); }),
               .ceiling = cold ? least : std::min(warm, link)});
        }
      }
    };
    if (Wants("plain")) each_way(".npy", plain);
    if (Wants("zarr")) {
      for (const int64_t side : {256, 128, 32}) {
        for (const bool big : {false, true}) {
          if (big && side != 128) continue;
          const fs::path zarr = folder_ / absl::StrCat("raw-", side, big ? "-be" : "");
          (void)WriteZarr(zarr, voxels, planes, side, false, big);
          each_way(absl::StrCat("raw Zarr ", side, "^3", big ? ", big-endian" : ""), zarr);
          fs::remove_all(zarr);
        }
      }
    }
    if (Wants("zstd")) {
      for (const int64_t side : {128, 64}) {
        const fs::path zarr = folder_ / absl::StrCat("zstd-", side);
        const int64_t encoded = WriteZarr(zarr, voxels, planes, side, true, false);
        const double decode = Best([&] { return DecodeInMemory(zarr, side); });
        const double ratio = static_cast<double>(bytes_) / static_cast<double>(encoded);
        Add({.what = absl::StrFormat("zstd %d^3 (1 : %.2f) decoded in memory by %d threads", side,
                                     ratio, tbb::info::default_concurrency()),
             .ceiling_name = "",
             .value = decode});
        for (const bool cold : {true, false}) {
          const double ceiling = std::min({decode, link, cold ? drive * ratio : link});
          Add({.what = absl::StrCat("zstd Zarr ", side, "^3", cold ? ", cold" : ", warm"),
               .ceiling_name = ceiling == decode ? "decoding in memory"
                               : ceiling == link ? "the link"
                                                 : "the drive",
               .value = Best([&] { return ReadOnce(zarr, ReadWay::kBuffered, cold); }),
               .ceiling = ceiling});
        }
        fs::remove_all(zarr);
      }
    }
    Table();
  }

 private:
  bool Wants(const char* what) const { return options_.only.empty() || options_.only == what; }

  double Best(const std::function<double()>& once) const {
    std::vector<double> values;
    for (int i = 0; i < options_.rounds; ++i) values.push_back(once());
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

  double MeasureLink() {
    constexpr int64_t kPart = 64 << 20;
    const PinnedBuffer from = Must(device_.AllocatePinned(kPart), "page-locked memory");
    std::memset(from.data(), 1, kPart);
    return Best([&] {
      const double begun = Now();
      int64_t sent = 0;
      for (int i = 0; i < 8; ++i, sent += kPart)
        Must(device_.CopyToDevice(stream_.ref(), out_.data(), from.data(), std::min(kPart, bytes_)),
             "a copy");
      Must(stream_.ref().Synchronize(), "copies");
      return static_cast<double>(std::min(kPart, bytes_) * 8) / (Now() - begun);
    });
  }

  /// Page-locked memory that stays for the next read, as the server's does.
  storage::LendSlab Lender() {
    return [this](int64_t bytes) -> absl::StatusOr<std::shared_ptr<void>> {
      auto& free = slabs_[bytes];
      std::unique_ptr<PinnedBuffer> slab;
      {
        MutexLock lock(mutex_);
        if (!free.empty()) {
          slab = std::move(free.back());
          free.pop_back();
        }
      }
      if (slab == nullptr) {
        OCTAVO_ASSIGN_OR_RETURN(PinnedBuffer made, device_.AllocatePinned(bytes));
        slab = std::make_unique<PinnedBuffer>(std::move(made));
      }
      void* const data = slab->data();
      return std::shared_ptr<void>(data, [this, bytes, raw = slab.release()](void*) {
        MutexLock lock(mutex_);
        slabs_[bytes].emplace_back(raw);
      });
    };
  }

  /// Bytes of voxels per second, compared.
  double ReadOnce(const fs::path& path, ReadWay kind, bool cold) {
    Must(device_.Fill(stream_.ref(), out_.data(), bytes_, 0), "filling");
    if (cold) Evict(path);
    storage::RootWay way;
    way.Set(kind, kind == ReadWay::kCufile ? ReadWay::kBuffered : kind);
    Must(stream_.ref().Synchronize(), "filling");
    const double begun = Now();
    auto input = Must(storage::OpenVolumeInput(path.string(), {}), "the file");
    const auto volume =
        Must(storage::InputVolume::Make(std::move(input),
                                        {.axes = {"z", "y", "x"}, .allow_unknown_spacing = true}),
             "the volume");
    const auto opened = Must(volume->OpenDirect(), "the pieces");
    storage::DeviceRead read{
        .device = &device_,
        .lend = Lender(),
        .source = opened->source.get(),
        .box_axis = {opened->box_axis[0], opened->box_axis[1], opened->box_axis[2]},
        .out_stride = {kRows * kColumns * 2, kColumns * 2, 2},
        .out = out_.data(),
        .elements = bytes_ / 2,
        .spec = opened->spec,
        .way = &way,
        .cufile = cufile_.get()};
    const auto reader = Must(storage::DeviceReader::Create(read), "a reader");
    Must(reader->Run(stream_.ref(), [](double) { return absl::OkStatus(); }), "reading");
    const double seconds = Now() - begun;
    if (way.errors() > 0)
      Die(absl::StrCat("cuFile failed ", way.errors(), " reads of ", path.string(), ": ",
                       way.last_error()));
    Compare(path);
    return static_cast<double>(bytes_) / seconds;
  }

  void Compare(const fs::path& path) {
    const DeviceBuffer word = Must(device_.Allocate(8), "a word");
    const PinnedBuffer host = Must(device_.AllocatePinned(8), "a word");
    Must(device_.Digest(stream_.ref(), DeviceSpan<const uint8_t>(out_.as<uint8_t>(), bytes_),
                        word.span<uint64_t>()),
         "a digest");
    Must(device_.CopyToHost(stream_.ref(), host.data(), word.data(), 8), "a copy");
    Must(stream_.ref().Synchronize(), "a digest");
    if (*host.as<uint64_t>() != digest_) Die(absl::StrCat(path.string(), " came with other bytes"));
  }

  void Add(const Row& row) {
    nlohmann::json line = {{"name", row.what}, {"GB_per_s", row.value / 1e9}};
    if (row.ceiling > 0) {
      line["ceiling"] = row.ceiling_name;
      line["of_ceiling"] = row.value / row.ceiling;
    }
    std::cout << line.dump() << std::endl;
    rows_.push_back(row);
  }

  void Table() const {
    std::printf("\n%s, %lld MiB in %s\n| what | GB/s | of the ceiling |\n|---|---|---|\n",
                device_.info().model.c_str(), static_cast<long long>(options_.mib),
                options_.directory.c_str());
    for (const Row& row : rows_) {
      std::printf("| %s | %.2f | %s |\n", row.what.c_str(), row.value / 1e9,
                  row.ceiling > 0 ? absl::StrFormat("%.0f %% of %s", 100 * row.value / row.ceiling,
                                                    row.ceiling_name)
                                        .c_str()
                                  : "");
    }
  }

  const Options& options_;
  Device& device_;
  const Stream stream_;
  const fs::path folder_;
  std::unique_ptr<storage::CuFile> cufile_;
  Mutex mutex_;
  std::map<int64_t, std::vector<std::unique_ptr<PinnedBuffer>>> slabs_;
  int64_t bytes_ = 0;
  uint64_t digest_ = 0;
  DeviceBuffer out_;
  std::vector<Row> rows_;
};

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  octavo::Options options;
  octavo::bench::ReadOptions(argc, argv,
                             {{"--directory", &options.directory},
                              {"--mib", &options.mib},
                              {"--backend", &options.backend},
                              {"--rounds", &options.rounds},
                              {"--only", &options.only},
                              {"--cufile", &options.cufile},
                              {"--library", &options.library},
                              {"--keep", &options.keep}});
  if (options.directory.empty() || options.mib < 1 || options.rounds < 1 ||
      !std::filesystem::is_directory(options.directory))
    octavo::bench::Die("--directory names a folder to write to; --mib and --rounds are at least 1");
  auto opened = octavo::Must(octavo::OpenDevices(options.backend), "devices");
  octavo::Bench(options, *opened.devices.front()).Run();
  return 0;
}

// Commits of a volume in host memory, by format, beside what fio writes into the same directory: 4
// MiB blocks, direct, four files with eight writes in flight each, synced at the end. No daemon.
//   bench_commit --directory DIR [--mib 1024] [--rounds 3] [--formats npy,zarr-none,...]
//                [--buffered 1]
// --buffered lets fio write through the page cache, too. With zarr-none, fio writes files of 1 MiB,
// too (8 at a time, each in one write): what the file system takes of chunks that are files. All
// take turns in each round, so that what else the machine does meets them alike. The digest is
// checked by each commit, the sizes of its files after the first ones. Prints a JSON object for
// each figure; publish_s is the part of a commit after its last voxel was handed over: the last
// writes, and what makes them durable.

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

#include "gpu/device/digest.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/commit/whole_commit.h"
#include "tests/bench/bench_basics.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using bench::Clock;
using bench::Die;
using storage::Format;
using storage::WriterOptions;

const std::map<std::string, WriterOptions>& Formats() {
  static const std::map<std::string, WriterOptions> formats = {
      {"npy", {.format = Format::kNpy}},
      {"nifti", {.format = Format::kNifti}},
      {"nrrd", {.format = Format::kNrrd, .compress = false}},
      {"tiff", {.format = Format::kOmeTiff, .compress = false}},
      {"zarr-none", {.compress = false}},
      {"zarr-none-256k", {.chunk = {8, 128, 128}, .compress = false}},
      {"zarr-none-4m", {.chunk = {32, 256, 256}, .compress = false}},
      {"zarr-shards", {.chunk = {32, 128, 128}, .shard = {32, 512, 512}, .compress = false}},
      {"zarr-zstd", {}},
      {"hdf5-none", {.format = Format::kHdf5, .compress = false}},
      {"hdf5-gzip", {.format = Format::kHdf5}}};
  return formats;
}

/// Numbers of u16 that compress to about a half, as those of OCT do.
std::vector<uint16_t> MakeVoxels(int64_t planes) {
  std::vector<uint16_t> voxels(static_cast<size_t>(planes * 512 * 512));
  uint64_t state = 1;
  for (size_t i = 0; i < voxels.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    voxels[i] = static_cast<uint16_t>(20'000 + (i / 512 % 512) * 8 + (state >> 56));
  }
  return voxels;
}

/// Options of fio: a few large files, and many of 1 MiB.
std::string LargeFiles(int64_t mib, bool direct) {
  return absl::StrCat("--bs=4M --size=", mib / 4,
                      "M --numjobs=4 --iodepth=8 --ioengine=libaio --direct=", direct ? 1 : 0);
}
std::string SmallFiles(int64_t mib) {
  return absl::StrCat("--bs=1M --filesize=1M --size=", mib / 8, "M --nrfiles=", mib / 8,
                      " --create_on_open=1 --openfiles=1 --file_service_type=sequential "
                      "--numjobs=8 --ioengine=psync --direct=1");
}

/// Bytes per second that fio writes; 0 without fio.
double Fio(const fs::path& directory, const std::string& options) {
  const std::string command =
      absl::StrCat("fio --name=w --directory=", directory.string(), " --rw=write ", options,
                   " --end_fsync=1 --group_reporting --output-format=json 2>/dev/null");
  std::FILE* const out = ::popen(command.c_str(), "r");
  if (out == nullptr) return 0;
  std::string text;
  char piece[4096];
  while (const size_t n = std::fread(piece, 1, sizeof piece, out)) text.append(piece, n);
  if (::pclose(out) != 0) return 0;
  const auto json = nlohmann::json::parse(text);
  for (const auto& entry : fs::directory_iterator(directory)) fs::remove(entry);
  return json["jobs"][0]["write"]["bw_bytes"].get<double>();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Main(int argc, char** argv) {
  std::string directory, formats = "npy,zarr-none,zarr-zstd,nifti,hdf5-none,hdf5-gzip";
  int64_t mib = 1024;
  int rounds = 3;
  bool buffered = false;
  bench::ReadOptions(argc, argv,
                     {{"--directory", &directory},
                      {"--mib", &mib},
                      {"--rounds", &rounds},
                      {"--formats", &formats},
                      {"--buffered", &buffered}});
  if (directory.empty()) Die("--directory is missing");
  const fs::path work = fs::path(directory) / "octavo-bench-commit";
  fs::remove_all(work);
  fs::create_directories(work / "fio");
  auto store = bench::Take(
      storage::CommitStore::Open((work / "state").string(), {(work / "data").string()}, nullptr));
  const int64_t planes = std::max<int64_t>(1, mib * 2), plane = 512 * 512 * 2,
                bytes = planes * plane;
  const std::vector<uint16_t> voxels = MakeVoxels(planes);
  storage::VolumeMeta meta{.volume_name = "volumes/bench",
                           .scan_name = "scans/bench",
                           .shape = {planes, 512, 512},
                           .dtype = DType::kU16};
  meta.digest = absl::StrFormat("sum64:%016x", DigestBytes(voxels.data(), bytes, 0));

  std::map<std::string, std::vector<double>> rates, cpu, ends;
  std::map<std::string, int64_t> on_disk;
  const std::vector<std::string> names = absl::StrSplit(formats, ',', absl::SkipEmpty());
  for (int round = 0; round < rounds; ++round) {
    const auto fio = [&](const char* what, const std::string& options) {
      if (const double rate = Fio(work / "fio", options); rate > 0) rates[what].push_back(rate);
    };
    fio("fio", LargeFiles(mib, /*direct=*/true));
    if (absl::c_linear_search(names, "zarr-none")) fio("fio, files of 1 MiB", SmallFiles(mib));
    if (buffered) fio("fio, page cache", LargeFiles(mib, /*direct=*/false));
    for (const std::string& name : names) {
      const auto of = Formats().find(name);
      if (of == Formats().end()) Die(absl::StrCat("unknown format ", name));
      const auto begun = Clock::now();
      const std::clock_t cpu_begun = std::clock();
      auto transaction = bench::Take(store->Begin("bench", name, meta, of->second));
      const int64_t slab = std::min(transaction->SlabBscans(), planes);
      for (int64_t y = 0; y < planes; y += slab)
        bench::Ok(
            transaction->WriteSlab(y, std::min(slab, planes - y), voxels.data() + y * plane / 2));
      const auto ending = Clock::now();
      const auto outcome = bench::Take(transaction->Publish());
      ends[name].push_back(bench::SecondsSince(ending));
      rates[name].push_back(static_cast<double>(bytes) / bench::SecondsSince(begun));
      cpu[name].push_back(static_cast<double>(std::clock() - cpu_begun) / CLOCKS_PER_SEC /
                          (static_cast<double>(bytes) * 1e-9));
      on_disk[name] = outcome.disk_bytes;
      if (round == 0) bench::Ok(storage::CheckWhole(store->roots(), name, of->second));
      transaction = nullptr;
      fs::remove_all(work / "data");
      fs::create_directories(work / "data");
    }
  }
  store = nullptr;
  fs::remove_all(work);
  const double fio = rates.contains("fio") ? Median(rates["fio"]) : 0;
  for (const auto& [name, values] : rates) {
    nlohmann::json line = {{"name", "commit"},
                           {"what", name},
                           {"mib", mib},
                           {"gb_per_s", Median(values) * 1e-9},
                           {"rounds", values.size()}};
    if (fio > 0 && name != "fio") line["of_fio"] = Median(values) / fio;
    if (cpu.contains(name)) {
      line["cpu_s_per_gb"] = Median(cpu[name]);
      line["disk_bytes"] = on_disk[name];
      line["publish_s"] = Median(ends[name]);
    }
    std::printf("%s\n", line.dump().c_str());
  }
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) { return octavo::Main(argc, argv); }

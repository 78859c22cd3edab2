// The chain streamed in pieces: upload from page-locked memory, chain and en face projection,
// overlapped on two streams by events. Pieces have 64 KiB to 64 MiB, u16 and 12 bits packed, with
// and without MIP. Each result is given as a share of the link rate of the same run, and of copies
// of the same size alone. Records are fresh and random. Every timed output is poisoned before and
// compared afterwards with the double-precision model. With --compare-host, all of it is also
// compared with the host backend's output and may differ by at most one step.
// --explain 1 instead measures what keeps a stream from reaching the link's rate: copies of the
// same size alone, uploads beside a chain that runs all the time on other records, two to four raw
// buffers, short and long rounds, sizes of whole pages and others.
//   bench_stream [--backend host|cuda] [--samples N] [--seconds S] [--largest-mib M]
//   [--compare-host 1] [--explain 1]

#include "absl/strings/str_cat.h"

#include "gpu/backend/open_devices.h"
#include "tests/bench/bench_support.h"

namespace octavo::bench {
namespace {

constexpr int kBuffers = 3;  // as in a session

double LinkRate(Device& device, int64_t piece, double seconds) {
  Stream stream = Take(device.NewStream(StreamPriority::kNormal));
  PinnedBuffer from[2] = {Take(device.AllocatePinned(piece)), Take(device.AllocatePinned(piece))};
  DeviceBuffer to[2] = {Take(device.Allocate(piece)), Take(device.Allocate(piece))};
  for (auto& buffer : from) std::memset(buffer.data(), 1, static_cast<size_t>(piece));
  const int copies = static_cast<int>(std::clamp<int64_t>((int64_t{512} << 20) / piece, 4, 4000));
  const double round = MedianSeconds(seconds, [&] {
    for (int i = 0; i < copies; ++i)
      Ok(device.CopyToDevice(stream.ref(), to[i % 2].data(), from[i % 2].data(), piece));
    Ok(stream.ref().Synchronize());
  });
  return copies * static_cast<double>(piece) / round * 1e-9;
}

struct Pieces {
  Device& device;
  int64_t samples;
  double seconds, link_gbs;
  int64_t link_piece;
  bool compare_host;

  void Run(int64_t piece_bytes, math::Packing packing) {
    int64_t records = 1;
    SpectralConfig c = StandardChain(samples, 1, packing);
    records = std::max<int64_t>(1, piece_bytes / RecordBytes(c));
    c.max_records_per_block = records;
    const RandomRecords raw = MakeRecords(c, records);
    const auto bytes = static_cast<int64_t>(raw.bytes.size());
    Stream upload = Take(device.NewStream(StreamPriority::kNormal)),
           compute = Take(device.NewStream(StreamPriority::kHigh));
    PinnedBuffer pinned[kBuffers];
    DeviceBuffer on_device[kBuffers];
    Event uploaded[kBuffers], used[kBuffers];
    for (int b = 0; b < kBuffers; ++b) {
      pinned[b] = Take(device.AllocatePinned(bytes));
      std::memcpy(pinned[b].data(), raw.bytes.data(), raw.bytes.size());
      on_device[b] = Take(device.Allocate(bytes));
      uploaded[b] = Take(device.NewEvent());
      used[b] = Take(device.NewEvent());
    }
    auto processor = Take(SpectralProcessor::Create(c, device));
    const DeviceBuffer volume = Take(device.Allocate(records * c.depth)),
                       mip = Take(device.Allocate(records));
    const RecordPlacement placement{.raster = {.ascans_per_bscan = records,
                                               .bscans_per_volume = 1,
                                               .flyback_records = 0,
                                               .bidirectional = false}};
    const bool gpu = device.info().backend == "cuda";
    const int blocks =
        gpu ? static_cast<int>(std::clamp<int64_t>((int64_t{768} << 20) / bytes, 48, 3000)) : 3;
    double rates[2] = {0, 0};
    for (const bool with_mip : {false, true}) {
      Ok(device.Fill(compute.ref(), volume.data(), records * c.depth, 0xA5A5A5A5u));
      Ok(device.Fill(compute.ref(), mip.data(), records, 0xA5A5A5A5u));
      Ok(compute.ref().Synchronize());
      const double round = MedianSeconds(seconds, [&] {
        for (int i = 0; i < blocks; ++i) {
          const int b = i % kBuffers;
          Ok(used[b].EnqueueWait(upload.ref()));
          Ok(device.CopyToDevice(upload.ref(), on_device[b].data(), pinned[b].data(), bytes));
          Ok(uploaded[b].Record(upload.ref()));
          Ok(uploaded[b].EnqueueWait(compute.ref()));
          Ok(processor->Process(compute.ref(), on_device[b].data(), records, placement,
                                {.volume = volume.data(),
                                 .volume_ascans = records,
                                 .mip = with_mip ? mip.data() : nullptr}));
          Ok(used[b].Record(compute.ref()));
        }
        Ok(compute.ref().Synchronize());
      });
      rates[with_mip] = blocks * static_cast<double>(records) / round;
      const auto got = Download(device, compute.ref(), volume.data(), records * c.depth);
      CheckAgainstModel(c, raw, records, got);
      if (with_mip) CheckMip(got, Download(device, compute.ref(), mip.data(), records), c.depth);
      if (compare_host) CompareWithHost(c, raw, records, got);
    }
    double mip_share = 0;
    if (gpu) {  // resident, so that the link does not hide the cost of the projection
      double resident[2];
      for (const bool with_mip : {false, true}) {
        resident[with_mip] = MedianSeconds(seconds / 2, [&] {
          for (int i = 0; i < blocks; ++i) {
            Ok(processor->Process(compute.ref(), on_device[0].data(), records, placement,
                                  {.volume = volume.data(),
                                   .volume_ascans = records,
                                   .mip = with_mip ? mip.data() : nullptr}));
          }
          Ok(compute.ref().Synchronize());
        });
      }
      mip_share = resident[1] / resident[0] - 1;
    }
    const double gbs = rates[1] * static_cast<double>(bytes) / static_cast<double>(records) * 1e-9;
    std::printf(
        "{\"name\": \"pieces\", \"backend\": \"%s\", \"samples\": %lld, \"raw\": \"%s\", "
        "\"piece_kib\": %lld, \"records\": %lld, "
        "\"ascans_per_s\": %.4g, \"raw_gb_per_s\": %.3f, \"of_link\": %.3f, \"of_copies_alone\": "
        "%.3f, \"mip_on_top_streamed\": %.4f, "
        "\"mip_on_top_resident\": %.4f, "
        "\"checked\": true}\n",
        device.info().backend.c_str(), static_cast<long long>(samples),
        packing == math::Packing::kNone ? "u16" : "u12p", static_cast<long long>(bytes >> 10),
        static_cast<long long>(records), rates[1], gbs, gbs / link_gbs,
        gbs / LinkRate(device, bytes, seconds / 2), rates[0] / rates[1] - 1, mip_share);
    std::fflush(stdout);
  }

  static void CheckMip(const std::vector<uint8_t>& volume, const std::vector<uint8_t>& mip,
                       int64_t depth) {
    for (size_t a = 0; a < mip.size(); ++a) {
      const auto begin = volume.begin() + static_cast<std::ptrdiff_t>(a) * depth;
      if (mip[a] != *std::max_element(begin, begin + depth))
        Die("MIP of A-scan " + std::to_string(a) + " is not the volume's");
    }
  }

  // Values may differ by at most one step, by rounding alone.
  static void CompareWithHost(const SpectralConfig& c, const RandomRecords& raw, int64_t records,
                              const std::vector<uint8_t>& got) {
    auto opened = Take(OpenDevices("host"));
    Device& host = *opened.devices[0];
    Stream stream = Take(host.NewStream(StreamPriority::kNormal));
    auto processor = Take(SpectralProcessor::Create(c, host));
    const DeviceBuffer on_host = Take(host.Allocate(static_cast<int64_t>(raw.bytes.size()))),
                       volume = Take(host.Allocate(records * c.depth));
    Ok(host.CopyToDevice(stream.ref(), on_host.data(), raw.bytes.data(),
                         static_cast<int64_t>(raw.bytes.size())));
    Ok(processor->Process(stream.ref(), on_host.data(), records,
                          {.raster = {.ascans_per_bscan = records,
                                      .bscans_per_volume = 1,
                                      .flyback_records = 0,
                                      .bidirectional = false}},
                          {.volume = volume.data(), .volume_ascans = records}));
    const auto wanted = Download(host, stream.ref(), volume.data(), records * c.depth);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (std::abs(int{wanted[i]} - int{got[i]}) > 1)
        Die("voxel " + std::to_string(i) + " differs from the host's by more than one step");
    }
  }
};

/// The measurements of --explain for one size of pieces.
struct Explanation {
  Device& device;
  int64_t samples;
  double seconds, link_gbs;

  void Run(math::Packing packing, int64_t records, int64_t skew) {
    constexpr size_t kMost = 4;
    SpectralConfig c = StandardChain(samples, records, packing);
    const RandomRecords raw = MakeRecords(c, records);
    const auto bytes = static_cast<int64_t>(raw.bytes.size());
    Stream upload = Take(device.NewStream(StreamPriority::kNormal)),
           compute = Take(device.NewStream(StreamPriority::kHigh));
    PinnedBuffer pinned[kMost];
    DeviceBuffer on_device[kMost], still = Take(device.Allocate(bytes));
    Event uploaded[kMost], used[kMost];
    for (size_t b = 0; b < kMost; ++b) {
      pinned[b] = Take(device.AllocatePinned(bytes + skew));
      std::memcpy(pinned[b].as<uint8_t>() + skew, raw.bytes.data(), raw.bytes.size());
      on_device[b] = Take(device.Allocate(bytes));
      uploaded[b] = Take(device.NewEvent());
      used[b] = Take(device.NewEvent());
    }
    Ok(device.CopyToDevice(upload.ref(), still.data(), pinned[0].as<uint8_t>() + skew, bytes));
    Ok(upload.ref().Synchronize());
    auto processor = Take(SpectralProcessor::Create(c, device));
    const DeviceBuffer volume = Take(device.Allocate(records * c.depth)),
                       mip = Take(device.Allocate(records));
    const RecordPlacement placement{.raster = {.ascans_per_bscan = records,
                                               .bscans_per_volume = 1,
                                               .flyback_records = 0,
                                               .bidirectional = false}};
    const auto process = [&](const void* from, bool with_mip) {
      Ok(processor->Process(compute.ref(), from, records, placement,
                            {.volume = volume.data(),
                             .volume_ascans = records,
                             .mip = with_mip ? mip.data() : nullptr}));
    };
    const auto copy = [&](size_t b) {
      Ok(device.CopyToDevice(upload.ref(), on_device[b].data(), pinned[b].as<uint8_t>() + skew,
                             bytes));
    };
    const auto line = [&](const char* what, int64_t n, double share) {
      std::printf(
          "{\"name\": \"explain\", \"raw\": \"%s\", \"bytes\": %lld, \"skew\": %lld, \"what\": "
          "\"%s\", \"n\": %lld, \"value\": %.4f}\n",
          packing == math::Packing::kNone ? "u16" : "u12p", static_cast<long long>(bytes),
          static_cast<long long>(skew), what, static_cast<long long>(n), share);
      std::fflush(stdout);
    };
    const auto share = [&](int blocks, double round) {
      return blocks * static_cast<double>(bytes) / round * 1e-9 / link_gbs;
    };
    const int base = static_cast<int>(std::clamp<int64_t>((int64_t{768} << 20) / bytes, 48, 3000));
    for (const int blocks : {base, 4 * base}) {
      line("copies alone, of the link", blocks, share(blocks, MedianSeconds(seconds, [&] {
                                                        for (int i = 0; i < blocks; ++i)
                                                          copy(static_cast<size_t>(i) % 3);
                                                        Ok(upload.ref().Synchronize());
                                                      })));
    }
    const double resident = MedianSeconds(seconds, [&] {
      for (int i = 0; i < base; ++i) process(still.data(), true);
      Ok(compute.ref().Synchronize());
    });
    line("chain resident, us a block", base, resident / base * 1e6);
    // No operation waits for another: any loss here is due to the memory system.
    const int rounds =
        std::max(1, static_cast<int>(share(base, 1) > 0 ? base * static_cast<double>(bytes) * 1e-9 /
                                                              link_gbs / resident * 1.2
                                                        : 1));
    line("uploads beside a chain that never stops, of the link", base,
         share(base, MedianSeconds(seconds, [&] {
                 for (int r = 0; r < rounds; ++r) {
                   for (int i = 0; i < base; ++i) process(still.data(), true);
                 }
                 for (int i = 0; i < base; ++i) copy(static_cast<size_t>(i) % 3);
                 Ok(upload.ref().Synchronize());
               })));
    Ok(compute.ref().Synchronize());
    for (const bool with_mip : {false, true}) {
      for (const size_t buffers : {size_t{2}, size_t{3}, kMost}) {
        for (const int blocks : {base, 4 * base}) {
          Ok(device.Fill(compute.ref(), volume.data(), records * c.depth, 0xA5A5A5A5u));
          Ok(compute.ref().Synchronize());
          const double round = MedianSeconds(seconds, [&] {
            for (int i = 0; i < blocks; ++i) {
              const size_t b = static_cast<size_t>(i) % buffers;
              Ok(used[b].EnqueueWait(upload.ref()));
              copy(b);
              Ok(uploaded[b].Record(upload.ref()));
              Ok(uploaded[b].EnqueueWait(compute.ref()));
              process(on_device[b].data(), with_mip);
              Ok(used[b].Record(compute.ref()));
            }
            Ok(compute.ref().Synchronize());
          });
          CheckAgainstModel(c, raw, records,
                            Download(device, compute.ref(), volume.data(), records * c.depth));
          line(absl::StrCat("streamed, ", buffers, " buffers", with_mip ? ", MIP" : "",
                            ", of the link")
                   .c_str(),
               blocks, share(blocks, round));
        }
      }
    }
  }
};

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  using namespace octavo;
  using namespace octavo::bench;
  std::string backend = "auto";
  int64_t samples = 1024, largest_mib = 64;
  double seconds = 0.3;
  bool compare_host = false, explain = false;
  ReadOptions(argc, argv,
              {{"--backend", &backend},
               {"--samples", &samples},
               {"--seconds", &seconds},
               {"--largest-mib", &largest_mib},
               {"--compare-host", &compare_host},
               {"--explain", &explain}});
  auto opened = Take(OpenDevices(backend));
  Device& device = *opened.devices[0];
  // The ceiling: copies of the largest pieces, with no other work beside them.
  const double link = LinkRate(device, largest_mib << 20, seconds);
  for (int64_t piece = 64 << 10; piece <= largest_mib << 20; piece *= 4) {
    std::printf(
        "{\"name\": \"copies alone\", \"backend\": \"%s\", \"device\": \"%s\", \"piece_kib\": "
        "%lld, \"gb_per_s\": %.2f, \"of_link\": %.3f}\n",
        device.info().backend.c_str(), device.info().model.c_str(),
        static_cast<long long>(piece >> 10), LinkRate(device, piece, seconds / 2),
        LinkRate(device, piece, seconds / 2) / link);
  }
  std::printf(
      "{\"name\": \"link\", \"backend\": \"%s\", \"piece_kib\": %lld, \"gb_per_s\": %.2f}\n",
      device.info().backend.c_str(), static_cast<long long>(largest_mib << 10), link);
  if (explain) {
    Explanation explanation{
        .device = device, .samples = samples, .seconds = seconds, .link_gbs = link};
    const int64_t page = 4096;
    for (const math::Packing packing : {math::Packing::kNone, math::Packing::kLowFirst12}) {
      const int64_t record = RecordBytes(StandardChain(samples, 1, packing));
      for (const int64_t mib : {int64_t{1}, int64_t{4}, int64_t{16}, int64_t{32}, int64_t{64}}) {
        if (mib > largest_mib) continue;
        const int64_t any = (mib << 20) / record, whole = (mib << 20) / (record * page) * page;
        explanation.Run(packing, any, 0);
        if (whole != any && whole > 0) explanation.Run(packing, whole, 0);
      }
      explanation.Run(packing, (std::min<int64_t>(16, largest_mib) << 20) / record, record);
    }
    return 0;
  }
  Pieces pieces{.device = device,
                .samples = samples,
                .seconds = seconds,
                .link_gbs = link,
                .link_piece = largest_mib << 20,
                .compare_host = compare_host};
  for (const math::Packing packing : {math::Packing::kNone, math::Packing::kLowFirst12}) {
    for (int64_t piece = 64 << 10; piece <= largest_mib << 20; piece *= 4)
      pieces.Run(piece, packing);
    for (int64_t piece = 2 << 20; piece <= largest_mib << 20; piece *= 4)
      pieces.Run(piece, packing);
  }
  return 0;
}

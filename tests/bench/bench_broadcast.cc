// One array to several devices. The program compares three ways: one upload that is forwarded from
// device to device (as a write to all replicas of a buffer does), one upload per device all at
// once, and one upload per device in turn. The same run measures the ceilings: the link of each
// device, all links together, and copies between neighbours. Contents are fresh and random for
// every way. The memory of all devices is poisoned before and compared as a whole afterwards.
//   bench_broadcast [--backend host|cuda] [--devices N] [--mib M] [--seconds S]

#include <memory>

#include "gpu/backend/open_devices.h"
#include "gpu/base/clock.h"
#include "server/buffer/buffer_store.h"
#include "server/buffer/replica_broadcast.h"
#include "tests/bench/bench_support.h"
#include "tests/support/rooms.h"

namespace octavo::bench {
namespace {

using engine::BufferStore;
using engine::BufferWriter;
using engine::ReplicaBroadcast;
using engine::StreamOrdering;

const engine::Caller kCaller{.client = "bench", .key = ""};

struct Broadcast {
  const std::vector<Device*> devices;
  const int64_t bytes;
  const double seconds;
  std::vector<Stream> streams;
  std::vector<DeviceBuffer> arrays;
  PinnedBuffer from;
  double link = 0, hop = 0;  // bytes per second: of the first device's upload, of copies from one
                             // device to the next

  Broadcast(std::vector<Device*> on, int64_t size, double s)
      : devices(std::move(on)), bytes(size), seconds(s) {
    for (Device* device : devices) {
      streams.push_back(Take(device->NewStream(StreamPriority::kNormal)));
      arrays.push_back(Take(device->Allocate(bytes)));
    }
    from = Take(devices[0]->AllocatePinned(bytes));
    Refresh();
  }

  void Refresh() {
    std::mt19937_64 random(std::random_device{}());
    for (int64_t i = 0; i < bytes / 8; ++i) from.as<uint64_t>()[i] = random();
  }
  void Wait(size_t n) {
    for (size_t i = 0; i < n; ++i) Ok(streams[i].ref().Synchronize());
  }
  void Poison() {
    for (size_t i = 0; i < devices.size(); ++i)
      Ok(devices[i]->Fill(streams[i].ref(), arrays[i].data(), bytes, 0xA5A5A5A5u));
    Wait(devices.size());
  }
  void Check(const char* name, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const auto got = Download(*devices[i], streams[i].ref(), arrays[i].data(), bytes);
      if (std::memcmp(got.data(), from.data(), got.size()) != 0)
        Die(std::string(name) + ": device " + std::to_string(i) + " has other bytes");
    }
  }
  void Line(const char* name, size_t n, int64_t piece, double took) const {
    const double rate = static_cast<double>(bytes) / took;
    std::printf(
        "{\"name\": \"%s\", \"backend\": \"%s\", \"device\": \"%s\", \"devices\": %zu, \"mib\": "
        "%lld, \"piece_kib\": %lld, \"ms\": %.3f, "
        "\"array_gb_per_s\": %.2f, \"of_link\": %.3f, \"checked\": true}\n",
        name, devices[0]->info().backend.c_str(), devices[0]->info().model.c_str(), n,
        static_cast<long long>(bytes >> 20), static_cast<long long>(piece >> 10), took * 1e3,
        rate * 1e-9, link > 0 ? rate / link : 1.0);
    std::fflush(stdout);
  }
  template <class F>
  double Timed(const char* name, size_t n, int64_t piece, F round) {
    Refresh();
    Poison();
    const double took = MedianSeconds(seconds, round);
    Check(name, n);
    Line(name, n, piece, took);
    return took;
  }

  void Ceilings() {
    for (size_t i = 0; i < devices.size(); ++i) {
      const double took = MedianSeconds(seconds, [&] {
        Ok(devices[i]->CopyToDevice(streams[i].ref(), arrays[i].data(), from.data(), bytes));
        Ok(streams[i].ref().Synchronize());
      });
      if (i == 0) link = static_cast<double>(bytes) / took;
      std::printf("{\"name\": \"link\", \"index\": %zu, \"gb_per_s\": %.2f}\n", i,
                  static_cast<double>(bytes) / took * 1e-9);
    }
    for (size_t i = 1; i < devices.size(); ++i) {
      for (const int64_t piece : {int64_t{1} << 20, int64_t{4} << 20, bytes}) {
        const double took = MedianSeconds(seconds / 2, [&] {
          for (int64_t at = 0; at < bytes; at += piece) {
            Ok(devices[i]->CopyAcross(streams[i].ref(), arrays[i].as<char>() + at,
                                      arrays[i - 1].as<char>() + at, std::min(piece, bytes - at)));
          }
          Ok(streams[i].ref().Synchronize());
        });
        if (i == 1 && piece == bytes) hop = static_cast<double>(bytes) / took;
        std::printf(
            "{\"name\": \"copy to the next\", \"from\": %zu, \"piece_kib\": %lld, \"gb_per_s\": "
            "%.1f}\n",
            i - 1, static_cast<long long>(piece >> 10), static_cast<double>(bytes) / took * 1e-9);
      }
    }
    std::fflush(stdout);
  }

  void Forwarded(size_t n, int64_t piece) {
    StreamOrdering order(devices);
    std::vector<ReplicaBroadcast::Stop> stops;
    for (size_t i = 0; i < n; ++i)
      stops.push_back({.device = static_cast<int>(i),
                       .stream = streams[i].ref(),
                       .memory = arrays[i].as<char>()});
    ReplicaBroadcast forwarder = Take(ReplicaBroadcast::Create(&order, std::move(stops), piece));
    Timed("forwarded", n, piece, [&] {
      (void)Take(forwarder.Upload(from.data(), 0, bytes));
      Wait(n);
    });
  }

  void Run(size_t n) {
    const auto upload = [&](size_t i) {
      Ok(devices[i]->CopyToDevice(streams[i].ref(), arrays[i].data(), from.data(), bytes));
    };
    Timed("one upload per device, one after the other", n, bytes, [&] {
      for (size_t i = 0; i < n; ++i) {
        upload(i);
        Ok(streams[i].ref().Synchronize());
      }
    });
    Timed("one upload per device, all at once", n, bytes, [&] {
      for (size_t i = 0; i < n; ++i) upload(i);
      Wait(n);
    });
    for (const int64_t piece : {int64_t{256} << 10, int64_t{1} << 20, int64_t{2} << 20,
                                int64_t{4} << 20, int64_t{8} << 20, int64_t{16} << 20, bytes}) {
      if (piece <= bytes) Forwarded(n, piece);
    }
  }

  /// The same through the store, from the memory of a client's message. The store copies it to
  /// staging memory and sums it on the way.
  void Store(size_t n) {
    SystemClock clock;
    engine::Ledger ledger(std::vector<int64_t>(n, 4 * bytes));
    engine::VolumeStore volumes(&ledger, &clock);
    engine::LeaseTable leases(&clock);
    engine::ExportStore exports({.devices = {},
                                 .ledger = &ledger,
                                 .volumes = &volumes,
                                 .clock = &clock,
                                 .server_id = "benchmrk"});
    std::vector<std::shared_ptr<engine::FramePool>> frames;
    for (Device* device : devices)
      frames.push_back(std::make_shared<engine::FramePool>(device, int64_t{256} << 20));
    BufferStore store(
        {.devices = {devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(n)},
         .ledger = &ledger,
         .volumes = &volumes,
         .leases = &leases,
         .clock = &clock,
         .exports = &exports,
         .frames = frames,
         .server_id = "benchmrk"});
    const std::string name =
        Take(
            store.Create({.scalar = Scalar::kU8, .shape = {static_cast<uint64_t>(bytes)}}, kCaller))
            .name;
    const auto write = [&](bool all, uint32_t replica) {
      auto writer = Take(store.OpenWrite({.name = name,
                                          .all = all,
                                          .replica = replica,
                                          .total_bytes = static_cast<uint64_t>(bytes)},
                                         kCaller));
      for (int64_t at = 0; at < bytes; at += BufferWriter::kMostChunk) {
        Ok(writer->Chunk(
            {{from.as<const char>() + at,
              static_cast<size_t>(std::min<int64_t>(BufferWriter::kMostChunk, bytes - at))}}));
      }
      (void)Take(writer->Finish());
    };
    const auto check = [&] {
      for (uint32_t i = 0; i < n; ++i) {
        auto reader = Take(store.OpenRead(
            {.name = name, .which = engine::BufferReadSpec::Which::kReplica, .replica = i},
            kCaller));
        for (int64_t at = 0; at < bytes;) {
          const engine::Bytes piece = Take(reader->Next(4 << 20));
          if (piece.size == 0 || std::memcmp(piece.data, from.as<const char>() + at,
                                             static_cast<size_t>(piece.size)) != 0) {
            Die("store: replica " + std::to_string(i) + " has other bytes from " +
                std::to_string(at));
          }
          at += piece.size;
        }
      }
    };
    Refresh();
    const double once = MedianSeconds(seconds, [&] {
      write(true, 0);
      Ok(store.Drain());
    });
    check();
    Line("store: a write to all", n, ReplicaBroadcast::kPieceBytes, once);
    Refresh();
    const double each = MedianSeconds(seconds, [&] {
      for (uint32_t i = 0; i < n; ++i) write(false, i);
      Ok(store.Drain());
    });
    check();
    Line("store: a write to each", n, ReplicaBroadcast::kPieceBytes, each);
  }
};

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  using namespace octavo;
  using namespace octavo::bench;
  std::string backend = "auto";
  int devices = 2;
  int64_t mib = 256;
  double seconds = 0.2;
  ReadOptions(
      argc, argv,
      {{"--backend", &backend}, {"--devices", &devices}, {"--mib", &mib}, {"--seconds", &seconds}});
  auto opened = Take(OpenDevices(backend, devices));
  if (std::ssize(opened.devices) < devices)
    Die("there are " + std::to_string(opened.devices.size()) + " devices");
  std::vector<Device*> all;
  for (int i = 0; i < devices; ++i) all.push_back(opened.devices[static_cast<size_t>(i)].get());
  for (const int64_t size : {mib << 20, int64_t{16} << 20}) {
    if (size > mib << 20) continue;
    Broadcast bench(all, size, seconds);
    bench.Ceilings();
    for (size_t n = 2; n <= all.size(); n *= 2) {
      bench.Run(n);
      bench.Store(n);
    }
  }
  return 0;
}

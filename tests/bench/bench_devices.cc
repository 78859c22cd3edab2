// One process, several devices. The program measures the resident chain on 1, 2, ... of them at
// once, the chain streamed from page-locked memory to all, the upload rate of each alone and of all
// together, and the rate of copies from each to the first. Records are fresh and random. Every
// timed output is poisoned before, and compared afterwards with the double-precision model and, bit
// for bit, between the devices.
//   bench_devices [--backend host|cuda] [--devices N] [--samples N] [--records N] [--seconds S]

#include <barrier>
#include <thread>

#include "gpu/backend/open_devices.h"
#include "tests/bench/bench_support.h"

namespace octavo::bench {
namespace {

constexpr int kBuffers = 2;

/// The resources of one device.
struct Worker {
  Device& device;
  Stream upload, compute;
  PinnedBuffer pinned[kBuffers];
  DeviceBuffer raw[kBuffers], volume, mip, peer;
  Event uploaded[kBuffers], used[kBuffers];
  std::unique_ptr<SpectralProcessor> processor;

  Worker(Device& of, const SpectralConfig& c, const RandomRecords& records, int64_t count)
      : device(of) {
    const auto bytes = static_cast<int64_t>(records.bytes.size());
    upload = Take(device.NewStream(StreamPriority::kNormal));
    compute = Take(device.NewStream(StreamPriority::kHigh));
    for (int b = 0; b < kBuffers; ++b) {
      pinned[b] = Take(device.AllocatePinned(bytes));
      std::memcpy(pinned[b].data(), records.bytes.data(), records.bytes.size());
      raw[b] = Take(device.Allocate(bytes));
      uploaded[b] = Take(device.NewEvent());
      used[b] = Take(device.NewEvent());
      Ok(device.CopyToDevice(upload.ref(), raw[b].data(), pinned[b].data(), bytes));
    }
    Ok(upload.ref().Synchronize());
    volume = Take(device.Allocate(count * c.depth));
    mip = Take(device.Allocate(count));
    peer = Take(device.Allocate(count * c.depth));
    processor = Take(SpectralProcessor::Create(c, device));
  }

  void Poison(int64_t bytes) {
    Ok(device.Fill(compute.ref(), volume.data(), bytes, 0xA5A5A5A5u));
    Ok(compute.ref().Synchronize());
  }
  void Process(int64_t count, int b) {
    const RecordPlacement placement{.raster = {.ascans_per_bscan = count,
                                               .bscans_per_volume = 1,
                                               .flyback_records = 0,
                                               .bidirectional = false}};
    Ok(processor->Process(compute.ref(), raw[b].data(), count, placement,
                          {.volume = volume.data(), .volume_ascans = count, .mip = mip.data()}));
  }
  void Resident(int64_t count, int blocks) {
    for (int i = 0; i < blocks; ++i) Process(count, 0);
    Ok(compute.ref().Synchronize());
  }
  void Streamed(int64_t count, int blocks) {
    for (int i = 0; i < blocks; ++i) {
      const int b = i % kBuffers;
      Ok(used[b].EnqueueWait(upload.ref()));
      Ok(device.CopyToDevice(upload.ref(), raw[b].data(), pinned[b].data(), pinned[b].bytes()));
      Ok(uploaded[b].Record(upload.ref()));
      Ok(uploaded[b].EnqueueWait(compute.ref()));
      Process(count, b);
      Ok(used[b].Record(compute.ref()));
    }
    Ok(compute.ref().Synchronize());
  }
  void Upload(int blocks) {
    for (int i = 0; i < blocks; ++i) {
      Ok(device.CopyToDevice(upload.ref(), raw[i % kBuffers].data(), pinned[i % kBuffers].data(),
                             pinned[i % kBuffers].bytes()));
    }
    Ok(upload.ref().Synchronize());
  }
};

/// Median seconds in which all `workers` run `work` at once, each on its own thread, as scans do.
template <class F>
double Together(const std::vector<Worker*>& workers, double seconds, F work) {
  std::vector<double> times;
  std::barrier begin(std::ssize(workers) + 1), end(std::ssize(workers) + 1);
  bool over = false;
  std::vector<std::jthread> threads;
  for (Worker* worker : workers) {
    threads.emplace_back([&, worker] {
      for (;;) {
        begin.arrive_and_wait();
        if (over) return;
        work(*worker);
        end.arrive_and_wait();
      }
    });
  }
  const auto round = [&] {
    begin.arrive_and_wait();
    end.arrive_and_wait();
  };
  const double median = MedianSeconds(seconds, round);
  over = true;
  begin.arrive_and_wait();
  return median;
}

void Run(std::vector<std::unique_ptr<Device>>& devices, int64_t samples, int64_t records,
         double seconds) {
  const SpectralConfig c = StandardChain(samples, records);
  const RandomRecords raw = MakeRecords(c, records);
  const auto bytes = static_cast<double>(raw.bytes.size());
  std::vector<std::unique_ptr<Worker>> workers;
  for (auto& device : devices)
    workers.push_back(std::make_unique<Worker>(*device, c, raw, records));
  const bool gpu = devices[0]->info().backend == "cuda";
  const int blocks = gpu ? 24 : 1;
  const auto head = [&](const char* name, size_t n) {
    std::printf(
        "{\"name\": \"%s\", \"backend\": \"%s\", \"device\": \"%s\", \"devices\": %zu, "
        "\"samples\": %lld, \"records\": %lld",
        name, devices[0]->info().backend.c_str(), devices[0]->info().model.c_str(), n,
        static_cast<long long>(samples), static_cast<long long>(records));
  };
  const auto first = [&](size_t n) {
    std::vector<Worker*> some;
    for (size_t i = 0; i < n; ++i) some.push_back(workers[i].get());
    return some;
  };
  const auto poison = [&] {
    for (auto& w : workers) w->Poison(records * c.depth);
  };
  std::vector<uint8_t> reference;
  const auto check = [&](size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const auto got = Download(workers[i]->device, workers[i]->compute.ref(),
                                workers[i]->volume.data(), records * c.depth);
      if (reference.empty()) {
        CheckAgainstModel(c, raw, records, got);
        reference = got;
      }
      if (got != reference)
        Die("device " + std::to_string(i) + " has another result than the first");
    }
  };

  double one = 0, all_links = 0;
  for (size_t i = 0; i < workers.size(); ++i) {
    const double up =
        Together({workers[i].get()}, seconds / 2, [&](Worker& w) { w.Upload(blocks); });
    head("upload alone", 1);
    std::printf(", \"index\": %zu, \"gb_per_s\": %.2f}\n", i, blocks * bytes / up * 1e-9);
    all_links += blocks * bytes / up;
  }
  for (size_t n = 2; n <= workers.size(); n *= 2) {
    const double up = Together(first(n), seconds / 2, [&](Worker& w) { w.Upload(blocks); });
    head("upload together", n);
    std::printf(", \"gb_per_s_each\": %.2f, \"gb_per_s\": %.2f}\n", blocks * bytes / up * 1e-9,
                static_cast<double>(n) * blocks * bytes / up * 1e-9);
  }
  for (size_t n = 1; n <= workers.size(); n *= 2) {
    poison();
    const double resident =
        Together(first(n), seconds, [&](Worker& w) { w.Resident(records, blocks); });
    check(n);
    const double rate = static_cast<double>(n) * blocks * static_cast<double>(records) / resident;
    if (n == 1) one = rate;
    head("resident", n);
    std::printf(
        ", \"ascans_per_s\": %.4g, \"ns_per_ascan\": %.3f, \"of_one\": %.3f, \"checked\": true}\n",
        rate, 1e9 / rate, rate / one);
  }
  double one_streamed = 0;
  for (size_t n = 1; n <= workers.size(); n *= 2) {
    poison();
    const double streamed =
        Together(first(n), seconds, [&](Worker& w) { w.Streamed(records, blocks); });
    check(n);
    const double rate = static_cast<double>(n) * blocks * static_cast<double>(records) / streamed;
    if (n == 1) one_streamed = rate;
    head("streamed", n);
    std::printf(
        ", \"ascans_per_s\": %.4g, \"gb_per_s\": %.2f, \"of_one\": %.3f, \"of_links\": %.3f, "
        "\"checked\": true}\n",
        rate, rate * bytes / static_cast<double>(records) * 1e-9, rate / one_streamed,
        rate * bytes / static_cast<double>(records) /
            (all_links * static_cast<double>(n) / static_cast<double>(workers.size())));
  }
  for (size_t i = 1; i < workers.size(); ++i) {
    Worker& from = *workers[i];
    const int64_t size = records * c.depth;
    Ok(workers[0]->device.Fill(workers[0]->compute.ref(), workers[0]->peer.data(), size,
                               0xA5A5A5A5u));
    Ok(workers[0]->compute.ref().Synchronize());
    const double copy = MedianSeconds(seconds / 2, [&] {
      for (int k = 0; k < 16; ++k)
        Ok(from.device.CopyAcross(from.compute.ref(), workers[0]->peer.data(), from.volume.data(),
                                  size));
      Ok(from.compute.ref().Synchronize());
    });
    if (Download(workers[0]->device, workers[0]->compute.ref(), workers[0]->peer.data(), size) !=
        reference)
      Die("a peer copy is not exact");
    head("copy to peer", 2);
    std::printf(", \"from\": %zu, \"piece_bytes\": %lld, \"gb_per_s\": %.1f, \"checked\": true}\n",
                i, static_cast<long long>(size), 16 * static_cast<double>(size) / copy * 1e-9);
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  std::string backend = "auto";
  int64_t samples = 0, records = 0;
  int devices = 2;
  double seconds = 0.5;
  octavo::bench::ReadOptions(argc, argv,
                             {{"--backend", &backend},
                              {"--devices", &devices},
                              {"--samples", &samples},
                              {"--records", &records},
                              {"--seconds", &seconds}});
  auto opened = octavo::bench::Take(octavo::OpenDevices(backend, devices));
  if (records == 0) records = opened.devices[0]->info().backend == "cuda" ? 65536 : 2048;
  for (const int64_t length :
       samples != 0 ? std::vector<int64_t>{samples} : std::vector<int64_t>{1024, 2048}) {
    octavo::bench::Run(opened.devices, length, records, seconds);
  }
  return 0;
}

// A producer's ring: another process publishes blocks in shared memory, the server's end lends them
// to the upload, and the chain with its en face projection runs over them, overlapped as in a scan.
// Beside it, in the same run: the plain upload ceiling (copies alone from page-locked memory of the
// program's own), the same copies from the ring's memory, and the chain streamed from the program's
// own memory. The producer is this program in another process. Two kinds: one that only publishes
// (like a digitizer that writes by DMA: the data are there) and one that writes every byte of every
// block, with several threads. Every timed output was poisoned before, and the last blocks are
// compared with the double-precision model.
//   bench_ring [--backend host|cuda] [--samples N] [--seconds S] [--piece-mib M] [--slots N]
//   [--threads N]

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "client/cpp/include/octavo/octavo_ring.h"
#include "gpu/backend/open_devices.h"
#include "server/source/ring_port.h"
#include "tests/bench/bench_support.h"
#include "tests/support/rooms.h"

namespace octavo::bench {
namespace {

constexpr int kBuffers = 3;  // as in a session
constexpr int kKinds = 4;    // different blocks, in turn
// Number of records after which a block repeats itself. With so few, the producer's own reading
// costs no memory bandwidth: a digitizer's program receives its data from a device.
constexpr int64_t kTile = 64;

// Block `kind` of the run: the same in both processes.
RandomRecords BlockOf(const SpectralConfig& c, int64_t records, uint64_t seed, int kind) {
  std::mt19937_64 random(seed + static_cast<uint64_t>(kind));
  RandomRecords out;
  out.counts.resize(static_cast<size_t>(records * c.samples_per_record));
  const auto tile = static_cast<size_t>(kTile * c.samples_per_record);
  for (size_t i = 0; i < out.counts.size(); ++i)
    out.counts[i] = i < tile ? static_cast<uint16_t>(random() & 4095) : out.counts[i - tile];
  out.bytes.resize(out.counts.size() * 2);
  std::memcpy(out.bytes.data(), out.counts.data(), out.bytes.size());
  return out;
}

// -- the other process

// Writes as a device does: past the caches, without reading the overwritten memory.
void WritePast(char* to, const char* from, size_t bytes) {
#ifdef __SSE2__
  size_t at = 0;
  for (; at + 64 <= bytes; at += 64) {
    for (size_t k = 0; k < 64; k += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + k),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at + k)));
    }
  }
  std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

// Copies by several persistent threads.
class Copiers {
 public:
  explicit Copiers(int threads) {
    for (int t = 0; t < threads; ++t) {
      threads_.emplace_back([this, t, threads](std::stop_token stop) {
        for (uint64_t round = 1; !stop.stop_requested(); ++round) {
          while (round_.load(std::memory_order_acquire) < round && !stop.stop_requested())
            std::this_thread::yield();
          if (stop.stop_requested()) return;
          const size_t part = (bytes_ / static_cast<size_t>(threads) + 63) / 64 * 64,
                       begin = std::min(bytes_, part * static_cast<size_t>(t));
          for (size_t at = begin, end = std::min(bytes_, begin + part); at < end;) {
            const size_t within = at % tile_, count = std::min(tile_ - within, end - at);
            WritePast(to_ + at, from_ + within, count);
            at += count;
          }
          done_.fetch_add(1, std::memory_order_release);
        }
      });
    }
  }
  // Fills `bytes` with repeated copies of a tile of `tile` bytes.
  void Copy(char* to, const char* from, size_t tile, size_t bytes) {
    to_ = to;
    from_ = from;
    bytes_ = bytes;
    tile_ = tile;
    done_ = 0;
    round_.fetch_add(1, std::memory_order_release);
    while (done_.load(std::memory_order_acquire) < static_cast<int>(threads_.size()))
      std::this_thread::yield();
  }

 private:
  char* to_ = nullptr;
  const char* from_ = nullptr;
  size_t bytes_ = 0, tile_ = 0;
  std::atomic<uint64_t> round_{0};
  std::atomic<int> done_{0};
  std::vector<std::jthread> threads_;
};

int Produce(int fd, uint64_t seed, int threads) {
  octavo_ring ring;
  char error[256] = "";
  if (octavo_ring_map(&ring, fd, error, sizeof error) != 0) Die(error);
  const SpectralConfig c = StandardChain(ring.samples_per_record, ring.block_records);
  std::vector<RandomRecords> kinds;
  for (int k = 0; k < kKinds; ++k) kinds.push_back(BlockOf(c, ring.block_records, seed, k));
  // The data that a digitizer has already written.
  for (uint32_t s = 0; s < ring.slots; ++s) {
    const auto& kind = kinds[s % kKinds].bytes;
    std::memcpy(ring.memory + ring.facts.data_offset + s * ring.facts.slot_bytes, kind.data(),
                kind.size());
  }
  std::unique_ptr<Copiers> copiers = threads > 0 ? std::make_unique<Copiers>(threads) : nullptr;
  while (void* slot = octavo_ring_begin(&ring, -1)) {
    if (copiers != nullptr)
      copiers->Copy(static_cast<char*>(slot),
                    reinterpret_cast<const char*>(kinds[ring.published % kKinds].bytes.data()),
                    std::min<size_t>(kTile * ring.record_bytes, kinds[0].bytes.size()),
                    kinds[0].bytes.size());
    octavo_ring_publish(&ring, ring.block_records);
  }
  const bool closed = errno == EPIPE;
  octavo_ring_close(&ring);
  return closed ? 0 : 1;
}

// -- the server's side

double CopiesAlone(Device& device, StreamRef stream, const std::vector<const void*>& from,
                   int64_t piece, double seconds) {
  DeviceBuffer to[2] = {Take(device.Allocate(piece)), Take(device.Allocate(piece))};
  const int copies = static_cast<int>(std::clamp<int64_t>((int64_t{512} << 20) / piece, 4, 4000));
  const double round = MedianSeconds(seconds, [&] {
    for (int i = 0; i < copies; ++i)
      Ok(device.CopyToDevice(stream, to[i % 2].data(), from[static_cast<size_t>(i) % from.size()],
                             piece));
    Ok(stream.Synchronize());
  });
  return copies * static_cast<double>(piece) / round * 1e-9;
}

struct Chain {
  Device& device;
  SpectralConfig c;
  int64_t records, bytes;
  Stream upload = Take(device.NewStream(StreamPriority::kNormal)),
         compute = Take(device.NewStream(StreamPriority::kHigh));
  DeviceBuffer raw[kBuffers];
  Event uploaded[kBuffers], used[kBuffers];
  std::unique_ptr<SpectralProcessor> processor = Take(SpectralProcessor::Create(c, device));
  DeviceBuffer volume[kKinds] = {};
  DeviceBuffer mip = Take(device.Allocate(records));
  RecordPlacement placement{.raster = {.ascans_per_bscan = records,
                                       .bscans_per_volume = 1,
                                       .flyback_records = 0,
                                       .bidirectional = false}};

  Chain(Device& of, const SpectralConfig& config, int64_t count)
      : device(of), c(config), records(count), bytes(count * RecordBytes(config)) {
    for (int b = 0; b < kBuffers; ++b) {
      raw[b] = Take(device.Allocate(bytes));
      uploaded[b] = Take(device.NewEvent());
      used[b] = Take(device.NewEvent());
    }
    for (auto& part : volume) {
      part = Take(device.Allocate(records * c.depth));
      Ok(device.Fill(compute.ref(), part.data(), records * c.depth, 0xA5A5A5A5u));
    }
    Ok(compute.ref().Synchronize());
  }
  // Enqueues block i; `passed` is recorded behind it.
  void Enqueue(int64_t i, const void* from, Event& passed) {
    const auto b = static_cast<size_t>(i % kBuffers);
    Ok(used[b].EnqueueWait(upload.ref()));
    Ok(device.CopyToDevice(upload.ref(), raw[b].data(), from, bytes));
    Ok(uploaded[b].Record(upload.ref()));
    Ok(uploaded[b].EnqueueWait(compute.ref()));
    Ok(processor->Process(
        compute.ref(), raw[b].data(), records, placement,
        {.volume = volume[i % kKinds].data(), .volume_ascans = records, .mip = mip.data()}));
    Ok(used[b].Record(compute.ref()));
    Ok(passed.Record(compute.ref()));
  }
  void Check(uint64_t seed) {
    for (int k = 0; k < kKinds; ++k) {
      CheckAgainstModel(c, BlockOf(c, records, seed, k), records,
                        Download(device, compute.ref(), volume[k].data(), records * c.depth));
    }
  }
};

// Seconds for `blocks` blocks, with at most kFlight under way. `next` gives a block; `done` takes
// it back, on a thread that follows the device.
template <class Next, class Done>
double StreamBlocks(Chain& chain, int64_t blocks, Next next, Done done) {
  constexpr int64_t kFlight = 8;
  Event passed[kFlight];
  for (auto& event : passed) event = Take(chain.device.NewEvent());
  std::atomic<int64_t> enqueued{0}, retired{0};
  const auto begin = Clock::now();
  std::thread retire([&] {
    for (int64_t i = 0; i < blocks; ++i) {
      for (int64_t seen = enqueued; seen <= i; seen = enqueued) enqueued.wait(seen);
      Ok(passed[i % kFlight].Synchronize());
      done(i);
      retired = i + 1;
      retired.notify_one();
    }
  });
  for (int64_t i = 0; i < blocks; ++i) {
    for (int64_t seen = retired; seen + kFlight <= i; seen = retired) retired.wait(seen);
    chain.Enqueue(i, next(i), passed[i % kFlight]);
    enqueued = i + 1;
    enqueued.notify_one();
  }
  retire.join();
  return SecondsSince(begin);
}

struct Figures {
  double seconds = 0, cpu = 0;
};

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Figures FromRing(Device& device, const SpectralConfig& c, int64_t records, int64_t slots,
                 int64_t blocks, int threads, const char* self, double* copies_gbs,
                 double seconds) {
  static const SystemClock clock;
  engine::RingPort port({.record_bytes = RecordBytes(c),
                         .block_records = records,
                         .slots = slots,
                         .samples_per_record = c.samples_per_record,
                         .raw_type = 2,
                         .idle_timeout_s = 60,
                         .restart_grace_s = 1,
                         .producer_waits = true},
                        &clock);
  Ok(port.OpenMemory(device));
  const uint64_t seed = std::random_device{}();
  auto attached = Take(port.Attach({.cut = [] { Die("the producer was cut off"); }}));
  const std::string fd = std::to_string(attached.fd.get()), seed_text = std::to_string(seed),
                    threads_text = std::to_string(threads);
  const pid_t child = ::fork();
  if (child < 0) Die("fork");
  if (child == 0) {
    (void)::fcntl(attached.fd.get(), F_SETFD, 0);
    ::execl(self, "bench_ring", "--produce", fd.c_str(), "--seed", seed_text.c_str(), "--threads",
            threads_text.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  Figures figures;
  {
    Chain chain(device, c, records);
    std::vector<int64_t> loans(static_cast<size_t>(blocks));
    std::vector<const void*> places;
    const auto next = [&](int64_t i) -> const void* {
      const auto loan = Take(port.Lend({}));
      if (loan.block.records != records || loan.block.first_record % records != 0)
        Die("a block of the ring is not what was published");
      loans[static_cast<size_t>(i)] = loan.loan;
      if (static_cast<int64_t>(places.size()) < slots) places.push_back(loan.data);
      return loan.data;
    };
    const auto done = [&](int64_t i) { port.Return(loans[static_cast<size_t>(i)]); };
    (void)StreamBlocks(chain, std::min<int64_t>(blocks, 2 * slots), next,
                       done);  // warm-up; the producer is connected
    // The warm-up ends at a multiple of the kinds, so that block i stays kind i % kKinds.
    const double cpu = CpuSeconds();
    figures.seconds = StreamBlocks(chain, blocks, next, done);
    figures.cpu = CpuSeconds() - cpu;
    chain.Check(seed);
    if (port.Counts().lost_records != 0 || port.Counts().broken_blocks != 0)
      Die("records were lost");
    if (copies_gbs != nullptr)
      *copies_gbs = CopiesAlone(device, chain.upload.ref(), places, chain.bytes, seconds);
  }
  port.Close();
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) Die("the producer failed");
  port.Detach(attached.connection);
  port.CloseMemory();
  return figures;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  using namespace octavo;
  using namespace octavo::bench;
  std::string backend = "auto";
  int64_t samples = 1024, piece_mib = 4, slots = 16, threads = 0;
  uint64_t seed = 0;
  int fd = -1;
  double seconds = 1;
  ReadOptions(argc, argv,
              {{"--backend", &backend},
               {"--samples", &samples},
               {"--seconds", &seconds},
               {"--piece-mib", &piece_mib},
               {"--slots", &slots},
               {"--threads", &threads},
               {"--seed", &seed},
               {"--produce", &fd}});
  if (fd >= 0) return Produce(fd, seed, static_cast<int>(threads));
  char self[4096] = "";
  if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0) Die("readlink");
  auto opened = Take(OpenDevices(backend));
  Device& device = *opened.devices[0];
  if (threads == 0)
    threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / 2);
  slots = std::max<int64_t>(slots / kKinds * kKinds, 2 * kKinds);
  SpectralConfig c = StandardChain(samples, 1);
  const int64_t records = std::max<int64_t>(1, (piece_mib << 20) / RecordBytes(c)),
                piece = records * RecordBytes(c);
  c.max_records_per_block = records;

  // The ceiling: copies from this program's own page-locked memory, with no other work beside them.
  std::vector<PinnedBuffer> own;
  std::vector<const void*> places;
  const uint64_t own_seed = std::random_device{}();
  for (int k = 0; k < kKinds; ++k) {
    own.push_back(Take(device.AllocatePinned(piece)));
    std::memcpy(own.back().data(), BlockOf(c, records, own_seed, k).bytes.data(),
                static_cast<size_t>(piece));
    places.push_back(own.back().data());
  }
  Stream stream = Take(device.NewStream(StreamPriority::kNormal));
  const double link = CopiesAlone(device, stream.ref(), places, piece, seconds);
  // As many blocks as the link moves in `seconds`, a multiple of the kinds.
  const auto blocks =
      std::max<int64_t>(
          8, static_cast<int64_t>(link * 1e9 * (device.info().backend == "cuda" ? seconds : 0.0) /
                                  static_cast<double>(piece))) /
      kKinds * kKinds;
  const auto tell = [&](const char* what, double gbs, double cpu_per_gb, int with_threads) {
    std::printf(
        "{\"name\": \"ring\", \"what\": \"%s\", \"backend\": \"%s\", \"device\": \"%s\", "
        "\"samples\": %lld, \"piece_kib\": %lld, \"slots\": %lld, "
        "\"producer_threads\": %d, \"gb_per_s\": %.3f, \"of_link\": %.4f, \"server_cpu_s_per_gb\": "
        "%.4f, \"checked\": true}\n",
        what, device.info().backend.c_str(), device.info().model.c_str(),
        static_cast<long long>(samples), static_cast<long long>(piece >> 10),
        static_cast<long long>(slots), with_threads, gbs, gbs / link, cpu_per_gb);
    std::fflush(stdout);
  };
  const double total = static_cast<double>(blocks) * static_cast<double>(piece) * 1e-9;
  tell("copies alone, own memory (the ceiling)", link, 0, 0);
  {
    Chain chain(device, c, records);
    (void)StreamBlocks(
        chain, std::min<int64_t>(blocks, 2 * kKinds),
        [&](int64_t i) { return places[static_cast<size_t>(i % kKinds)]; }, [](int64_t) {});
    const double took = StreamBlocks(
        chain, blocks, [&](int64_t i) { return places[static_cast<size_t>(i % kKinds)]; },
        [](int64_t) {});
    chain.Check(own_seed);
    tell("chain, own memory", total / took, 0, 0);
  }
  double copies = 0;
  const Figures published = FromRing(device, c, records, slots, blocks, 0, self, &copies, seconds);
  tell("copies alone, the ring's memory", copies, 0, 0);
  tell("chain, producer only publishes", total / published.seconds, published.cpu / total, 0);
  const Figures written = FromRing(device, c, records, slots, blocks, static_cast<int>(threads),
                                   self, nullptr, seconds);
  tell("chain, producer writes all data", total / written.seconds, written.cpu / total,
       static_cast<int>(threads));
  return 0;
}

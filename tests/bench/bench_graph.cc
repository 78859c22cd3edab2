// Whether a captured graph would be launched faster than the calls themselves: the sequence of a block (upload, event, chain with
// MIP, event), enqueued by calls and as a graph of many blocks that has nothing to change, which is the best that a graph can do;
// for small and usual pieces. CUDA only; both results are compared bit for bit.
//   bench_graph [--seconds S]

#include <cuda_runtime.h>

#include "gpu/cuda/cuda_stream.h"
#include "tests/bench/bench_support.h"

namespace octavo::bench {
namespace {

constexpr int kBuffers = 4, kBlocks = 96;

void Cuda(cudaError_t error) {
  if (error != cudaSuccess) Die(cudaGetErrorString(error));
}

void Run(Device& device, int64_t samples, int64_t piece_bytes, double seconds) {
  const int64_t records = piece_bytes / (2 * samples);
  const SpectralConfig c = StandardChain(samples, records);
  const RandomRecords raw = MakeRecords(c, records);
  const auto bytes = static_cast<int64_t>(raw.bytes.size());
  Stream upload = Take(device.NewStream(StreamPriority::kNormal)), second = Take(device.NewStream(StreamPriority::kNormal));
  Stream compute = Take(device.NewStream(StreamPriority::kHigh));
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
  const DeviceBuffer volume = Take(device.Allocate(records * c.depth)), mip = Take(device.Allocate(records));
  const RecordPlacement placement{.raster = {.ascans_per_bscan = records, .bscans_per_volume = 1, .flyback_records = 0, .bidirectional = false}};
  const SpectralTarget target{.volume = volume.data(), .volume_ascans = records, .mip = mip.data()};
  const auto enqueue = [&](bool fresh, bool two_uploads) {
    for (int i = 0; i < kBlocks; ++i) {
      const int b = i % kBuffers;
      const StreamRef up = two_uploads && i % 2 == 1 ? second.ref() : upload.ref();
      if (!fresh || i >= kBuffers) Ok(used[b].EnqueueWait(up));  // within a capture only what was captured can be waited for
      Ok(device.CopyToDevice(up, on_device[b].data(), pinned[b].data(), bytes));
      Ok(uploaded[b].Record(up));
      Ok(uploaded[b].EnqueueWait(compute.ref()));
      Ok(processor->Process(compute.ref(), on_device[b].data(), records, placement, target));
      Ok(used[b].Record(compute.ref()));
    }
  };
  const auto poison = [&] {
    Ok(device.Fill(compute.ref(), volume.data(), records * c.depth, 0xA5A5A5A5u));
    Ok(compute.ref().Synchronize());
  };
  double host_calls = 0, host_graph = 0;
  const auto time_calls = [&](bool two_uploads) {
    poison();
    return MedianSeconds(seconds, [&] {
      const auto begin = Clock::now();
      enqueue(false, two_uploads);
      host_calls = SecondsSince(begin);
      Ok(compute.ref().Synchronize());
    });
  };
  const double two = time_calls(true);
  const auto by_two = Download(device, compute.ref(), volume.data(), records * c.depth);
  const double calls = time_calls(false);
  const auto by_calls = Download(device, compute.ref(), volume.data(), records * c.depth);
  CheckAgainstModel(c, raw, records, by_calls);
  if (by_two != by_calls) Die("two upload streams have another result");

  cudaStream_t up = cuda::Of(upload.ref()), down = cuda::Of(compute.ref());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaEvent_t fork = nullptr;
  Cuda(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  Cuda(cudaStreamBeginCapture(up, cudaStreamCaptureModeThreadLocal));
  Cuda(cudaEventRecord(fork, up));
  Cuda(cudaStreamWaitEvent(down, fork, 0));
  enqueue(true, false);
  Cuda(cudaEventRecord(fork, down));
  Cuda(cudaStreamWaitEvent(up, fork, 0));
  Cuda(cudaStreamEndCapture(up, &graph));
  Cuda(cudaGraphInstantiate(&exec, graph, 0));
  poison();
  const double graphed = MedianSeconds(seconds, [&] {
    const auto begin = Clock::now();
    Cuda(cudaGraphLaunch(exec, up));
    host_graph = SecondsSince(begin);
    Cuda(cudaStreamSynchronize(up));
  });
  if (Download(device, compute.ref(), volume.data(), records * c.depth) != by_calls) Die("the graph has another result");
  Cuda(cudaGraphExecDestroy(exec));
  Cuda(cudaGraphDestroy(graph));
  Cuda(cudaEventDestroy(fork));
  std::printf(
      "{\"name\": \"graph\", \"device\": \"%s\", \"samples\": %lld, \"piece_kib\": %lld, \"us_per_block_calls\": %.2f, \"us_per_block_two_uploads\": "
      "%.2f, \"us_per_block_graph\": %.2f, "
      "\"host_us_per_block_calls\": %.2f, \"host_us_per_block_graph\": %.2f, \"graph_over_calls\": %.3f, \"checked\": true}\n",
      device.info().model.c_str(), static_cast<long long>(samples), static_cast<long long>(bytes >> 10), calls / kBlocks * 1e6, two / kBlocks * 1e6,
      graphed / kBlocks * 1e6, host_calls / kBlocks * 1e6, host_graph / kBlocks * 1e6, calls / graphed);
  std::fflush(stdout);
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  double seconds = 0.3;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--seconds") seconds = std::atof(argv[i + 1]);
  }
  auto opened = octavo::bench::Take(octavo::OpenDevices("cuda"));
  for (const int64_t piece : {64 << 10, 256 << 10, 1 << 20, 4 << 20}) octavo::bench::Run(*opened.devices[0], 1024, piece, seconds);
  return 0;
}

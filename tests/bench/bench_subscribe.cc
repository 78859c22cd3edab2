// Volumes of a scan that has ended as a subscriber gets them through liboctavo, in one stream and
// by read; bench_service.py starts it. Every volume is compared with one that is read.
//   bench_subscribe --address HOST:PORT --scan scans/ID [--from 0] [--seconds 1]

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "client/cpp/include/octavo/octavo.h"
#include "tests/bench/bench_basics.h"

namespace {

using octavo::client::Array;
using octavo::client::Client;
using octavo::client::Error;
using octavo::client::Frame;
using octavo::client::Product;
using octavo::client::ReadOptions;

void Measure(Client& client, const std::string& scan, uint64_t from, double seconds) {
  std::map<std::string, Array> wanted;
  for (const bool by_read : {false, true}) {
    size_t bytes = 0, volumes = 0;
    const auto all = [&](bool compare) {
      bytes = volumes = 0;
      client.Subscribe({.parent = scan,
                        .products = {Product::kVolume},
                        .from_sequence = from,
                        .volumes_by_read = by_read},
                       [&](const Frame& frame) {
                         ++volumes;
                         bytes += frame.array.data.size();
                         if (!compare) return true;
                         auto [volume, is_new] = wanted.try_emplace(frame.volume);
                         if (is_new)
                           volume->second =
                               client.Read(frame.volume, ReadOptions{.connections = 1});
                         if (volume->second.data != frame.array.data)
                           octavo::bench::Die("the voxels differ");
                         return true;
                       });
    };
    all(true);
    const double took = octavo::bench::MedianSeconds(seconds, [&] { all(false); });
    if (volumes == 0) octavo::bench::Die("no volume came");
    std::printf(
        "{\"name\": \"subscriber_cpp\", \"way\": \"%s\", \"bytes\": %zu, \"gb_per_s\": %.3f, "
        "\"volumes_per_s\": %.2f}\n",
        by_read ? "by_read" : "stream", bytes / volumes, static_cast<double>(bytes) / took * 1e-9,
        static_cast<double>(volumes) / took);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string address, scan;
  uint64_t from = 0;
  double seconds = 1;
  octavo::bench::ReadOptions(
      argc, argv,
      {{"--address", &address}, {"--scan", &scan}, {"--from", &from}, {"--seconds", &seconds}});
  try {
    Client client(address);
    Measure(client, scan, from, seconds);
  } catch (const Error& error) {
    octavo::bench::Die(error.what());
  }
  return 0;
}

// Reads a volume of a running daemon through liboctavo, over one connection and over several, into
// fresh memory (Read) and into memory that stays (ReadInto); bench_service.py starts it. Every read
// is compared with the first.
//   bench_read --address HOST:PORT --volume volumes/ID [--seconds 1]

#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/include/octavo/octavo.h"
#include "tests/bench/bench_basics.h"

namespace {

using octavo::client::Array;
using octavo::client::Client;
using octavo::client::Error;
using octavo::client::ReadOptions;

void Measure(Client& client, const std::string& volume, double seconds) {
  const Array wanted = client.Read(volume, ReadOptions{.connections = 1});
  const auto check = [&](std::span<const std::byte> got) {
    if (got.size() != wanted.data.size() ||
        std::memcmp(got.data(), wanted.data.data(), got.size()) != 0)
      octavo::bench::Die("the voxels differ");
  };
  std::vector<std::byte> stays(wanted.data.size());
  for (const uint32_t connections : {1u, 2u, 4u, 8u, 0u}) {
    Array fresh;
    const double into_fresh = octavo::bench::MedianSeconds(
        seconds, [&] { fresh = client.Read(volume, ReadOptions{.connections = connections}); });
    check(fresh.data);
    const double into_stays = octavo::bench::MedianSeconds(
        seconds, [&] { client.ReadInto(volume, stays, {.connections = connections}); });
    check(stays);
    const double gb = static_cast<double>(stays.size()) * 1e-9;
    std::printf(
        "{\"name\": \"read_volume_cpp\", \"connections\": %u, \"bytes\": %zu, \"gb_per_s\": %.3f, "
        "\"into_gb_per_s\": %.3f}\n",
        connections, stays.size(), gb / into_fresh, gb / into_stays);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string address, volume;
  double seconds = 1;
  octavo::bench::ReadOptions(
      argc, argv, {{"--address", &address}, {"--volume", &volume}, {"--seconds", &seconds}});
  try {
    Client client(address);
    Measure(client, volume, seconds);
  } catch (const Error& error) {
    octavo::bench::Die(error.what());
  }
  return 0;
}

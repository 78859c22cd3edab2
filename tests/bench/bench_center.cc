// The accuracy and the time of FindAxis on random phantoms: one line for each phantom, with the
// seed that reproduces it, and one for all of them.
//   bench_center [--backend host|cuda] [--count N] [--seed N] [--slices N] [--method
//   auto|pairs|vo|entropy|phase] [--off COLUMNS] [--search COLUMNS]
// --off: the axis is this far from the middle, and the scans are noisy ones over half a turn;
// --search: search within this many columns of the middle, as jobs do by default. Ends with 1 if an
// axis on which two methods agreed is off by more than a column, or, with the automatic search, by
// more than a quarter of a column (except for a few rows of half a turn of an object wider than the
// detector, which do not determine it so well).

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gpu/backend/open_devices.h"
#include "gpu/tomography/axis.h"
#include "tests/bench/bench_basics.h"
#include "tests/gpu/tomography/phantoms.h"

namespace octavo {
namespace {

using bench::Die;
using bench::Ok;
using bench::ReadOptions;
using bench::Take;

const char* NameOf(CenterMethod method) {
  static constexpr const char* kNames[] = {"vo", "entropy", "phase", "pairs"};
  return kNames[static_cast<int>(method)];
}

int Main(int argc, char** argv) {
  std::string backend = "host", method = "auto";
  int64_t count = 200, slices = 1;
  uint64_t seed = 0;
  double off = 0, search = 0;
  ReadOptions(argc, argv,
              {{"--backend", &backend},
               {"--count", &count},
               {"--seed", &seed},
               {"--slices", &slices},
               {"--method", &method},
               {"--off", &off},
               {"--search", &search}});
  if (seed == 0) seed = std::random_device{}();
  const std::map<std::string, CenterMethod> methods = {{"vo", CenterMethod::kVo},
                                                       {"entropy", CenterMethod::kEntropy},
                                                       {"phase", CenterMethod::kPhaseCorrelation},
                                                       {"pairs", CenterMethod::kPairs}};
  if (method != "auto" && !methods.contains(method))
    Die("--method: allowed auto, pairs, vo, entropy, phase");
  OpenedDevices opened = Take(OpenDevices(backend));
  Device& device = *opened.devices[0];
  Stream stream = Take(device.NewStream(StreamPriority::kNormal));
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<double> errors, clear;
  int64_t misled = 0, doubted = 0, over_quarter = 0, over_column = 0;
  int64_t within[3] = {};  // one, two and three times the stated uncertainty
  double seconds = 0;
  for (int64_t i = 0; i < count; ++i) {
    testing::PhantomKind kind = testing::DrawKind(random);
    kind.slices = slices;
    if (off != 0) {
      kind.noisy = true;
      if (kind.scan == testing::PhantomScan::kTurn) kind.scan = testing::PhantomScan::kHalfTurn;
    }
    const auto phantom_seed = static_cast<uint32_t>(random());
    const testing::PhantomCase phantom = testing::DrawPhantom(kind, phantom_seed, off);
    const DeviceBuffer data =
        Take(device.Allocate(static_cast<int64_t>(phantom.sinograms.size()) * 4));
    Ok(device.CopyToDevice(stream.ref(), data.data(), phantom.sinograms.data(), data.bytes()));
    Ok(stream.ref().Synchronize());
    AxisConfig config{.automatic = method == "auto"};
    config.search.angles_rad = phantom.angles_rad;
    config.search.detectors = phantom.detectors;
    config.search.slices = slices;
    if (config.automatic || method == "pairs") {
      config.search.search_max = 0.5 * static_cast<double>(phantom.detectors - 1);
      config.search.search_min = -config.search.search_max;
    }
    if (search > 0) {
      config.search.search_max = search;
      config.search.search_min = -search;
    }
    if (!config.automatic) config.search.method = methods.at(method);
    const auto begin = bench::Clock::now();
    const AxisResult axis =
        Take(FindAxis(stream.ref(), config, {.data = data.span<float>()}, device));
    seconds += bench::SecondsSince(begin);
    const double error = axis.found.center - phantom.center;
    // A single slice of half a turn of a truncated object has information only in its few opposite
    // projections.
    const bool little = phantom.scan != testing::PhantomScan::kTurn &&
                        phantom.width != testing::PhantomWidth::kWhole && phantom.noisy &&
                        slices < 8;
    errors.push_back(std::abs(error));
    if (!little) clear.push_back(std::abs(error));
    if (axis.found.fitting_span_rad > 0) ++misled;  // the angles are right
    if (!axis.agreed) ++doubted;
    for (int times = 1; times <= 3; ++times)
      within[times - 1] += std::abs(error) <= times * axis.found.uncertainty ? 1 : 0;
    if (axis.agreed && std::abs(error) > 0.25) ++over_quarter;
    if (axis.agreed && std::abs(error) > 1) ++over_column;
    std::printf(
        "{\"phantom\": %lld, \"seed\": %u, \"kind\": \"%s\", \"error\": %.3f, \"uncertainty\": "
        "%.3f, \"method\": \"%s\", \"check\": %.3f, "
        "\"check_method\": \"%s\", \"agreed\": %s}\n",
        static_cast<long long>(i), phantom_seed, phantom.Text().c_str(), error,
        axis.found.uncertainty, NameOf(axis.method),
        axis.check.value_or(std::nan("")) - phantom.center, NameOf(axis.check_method),
        axis.agreed ? "true" : "false");
  }
  const auto part = [](std::vector<double>& of, double p) {
    std::sort(of.begin(), of.end());
    return of.empty() ? 0 : of[static_cast<size_t>(p * static_cast<double>(of.size() - 1))];
  };
  std::printf(
      "{\"bench\": \"center\", \"backend\": \"%s\", \"method\": \"%s\", \"seed\": %llu, \"count\": "
      "%lld, \"slices\": %lld, \"median_error\": %.4f, "
      "\"error_95\": %.3f, \"largest\": %.3f, \"clear\": %zu, \"largest_of_clear\": %.3f, "
      "\"doubted\": %lld, \"misled\": %lld, "
      "\"agreed_over_quarter\": %lld, "
      "\"agreed_over_column\": %lld, \"within_uncertainty\": [%lld, %lld, %lld], \"s\": %.2f}\n",
      backend.c_str(), method.c_str(), static_cast<unsigned long long>(seed),
      static_cast<long long>(count), static_cast<long long>(slices), part(errors, 0.5),
      part(errors, 0.95), part(errors, 1), clear.size(), part(clear, 1),
      static_cast<long long>(doubted), static_cast<long long>(misled),
      static_cast<long long>(over_quarter), static_cast<long long>(over_column),
      static_cast<long long>(within[0]), static_cast<long long>(within[1]),
      static_cast<long long>(within[2]), seconds);
  return over_column > 0 || (method == "auto" && part(clear, 1) > 0.25) ? 1 : 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) { return octavo::Main(argc, argv); }

// Random spectral chains with matching scans, blocks and data. Each chain is checked against a
// model in double precision, then run again, and run with the stream cut differently; both runs
// must give the same bits. The program prints the whole configuration of a wrong chain, and a
// summary. It ends with 1 if any chain is wrong. Chain i has seed S + i: `--count 1 --seed S+i`
// repeats it.
//   random_chains [--backend host|cuda] [--count N] [--seed S]

#include <cinttypes>
#include <cstdio>
#include <map>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"

#include "gpu/backend/open_devices.h"
#include "tests/bench/bench_basics.h"
#include "tests/bench/random_chain.h"

int main(int argc, char** argv) {
  using namespace octavo;
  std::string backend = "auto";
  int64_t count = 100;
  uint64_t seed = std::random_device{}();
  bench::ReadOptions(argc, argv, {{"--backend", &backend}, {"--count", &count}, {"--seed", &seed}});
  auto opened = bench::Take(OpenDevices(backend));
  Device& device = *opened.devices[0];
  std::printf("random_chains --backend %s --count %" PRId64 " --seed %" PRIu64 "\n",
              device.info().backend.c_str(), count, seed);
  std::fflush(stdout);
  const auto begin = bench::Clock::now();
  struct Form {
    int64_t chains = 0, wrong = 0;
    double worst = 0;
  };
  std::map<std::string, Form> forms;
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bench::RandomChain chain = bench::DrawChain(seed + static_cast<uint64_t>(i));
    const bench::ChainReport report = bench::CheckChain(chain, device);
    Form& form = forms[report.form];
    ++form.chains;
    form.worst = std::max(form.worst, report.worst);
    if (report.wrong.empty()) continue;
    ++form.wrong;
    if (++wrong > 20) continue;  // after twenty failures, prints no more
    std::printf("WRONG: seed %" PRIu64 "\n%s%s", chain.seed, Describe(chain).c_str(),
                report.description.substr(report.description.rfind("backend:")).c_str());
    for (const std::string& what : report.wrong) std::printf("  %s\n", what.c_str());
    std::fflush(stdout);
  }
  std::string text;
  for (const auto& [name, form] : forms) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", name, " ", form.chains, " (", form.wrong,
                    " wrong");
    if (form.worst > 0)
      absl::StrAppend(&text, ", complex numbers off by ", form.worst, " of what is allowed");
    text += ")";
  }
  std::printf(
      "%s: %" PRId64 " random chains from seed %" PRIu64 ", %" PRId64 " wrong, %.0f s: %s\n",
      device.info().backend.c_str(), count, seed, wrong, bench::SecondsSince(begin), text.c_str());
  return wrong == 0 ? 0 : 1;
}

#include <algorithm>
#include <iostream>

#include "client/cpp/bench/bench.h"
#include "client/cpp/cli/words.h"

namespace octavo::cli {
namespace {

void Bench(Session& session, const BenchFlags& flags) {
  std::unique_ptr<BenchDaemon> own;
  if (!session.address_given) {
    own = BenchDaemon::Start(flags);
    if (own == nullptr) {
      session.exit_code = kUnavailable;
      return;
    }
    session.address = own->address();
    session.login = {};  // it takes none
  }
  v1::GetInfoResponse info;
  auto system = v1::SystemService::NewStub(session.channel());
  if (!Check(session, system->GetInfo(session.Context().get(), {}, &info))) return;
  v1::ListDevicesResponse devices;
  if (!Check(session, system->ListDevices(session.Context().get(), {}, &devices)) ||
      devices.devices_size() == 0)
    return;
  const v1::DeviceStatus& device = devices.devices(0);
  if (!session.json) {
    std::cerr << "octavo bench: octavod " << info.version()
              << (own != nullptr ? ", started for this" : " at " + session.address) << ", "
              << device.backend() << ", " << device.model() << "\n";
  }
  BenchReport report(session);
  if (flags.Wants("chain")) BenchChain(session, flags, report);
  if (flags.Wants("latency")) BenchLatency(session, flags, report);
  if (flags.Wants("subscribe")) BenchSubscribe(session, flags, report);
  if (flags.Wants("subscribe")) BenchSubscribeByRead(session, flags, report);
  if (flags.Wants("commit")) BenchCommit(session, flags, report);
  if (flags.Wants("storage")) BenchStorage(session, flags, report);
  report.Finish("octavod " + info.version() + ", " + device.backend() + ", " + device.model());
}

}  // namespace

bool BenchFlags::Wants(const std::string& name) const {
  return (what.empty() && name != "storage") ||
         std::find(what.begin(), what.end(), name) != what.end();
}

void AddBenchCommand(CLI::App& app, Session& session) {
  auto flags = std::make_shared<BenchFlags>();
  auto* bench = app.add_subcommand("bench",
                                   "what this machine gives: copies, the chain, latency, "
                                   "subscriptions, commits. Starts a daemon of its own, or with "
                                   "--address uses a running one");
  bench
      ->add_option("what", flags->what,
                   "chain | latency | subscribe | commit | storage (default: all but storage)")
      ->check(OneOf({"chain", "latency", "subscribe", "commit", "storage"}));
  bench->add_option("--seconds", flags->seconds, "of each figure; 0.01 to 10")
      ->check(CLI::Range(0.01, 10.0));
  bench->add_option("--samples", flags->samples, "of a record; 64 to 16384")
      ->check(CLI::Range(64, 16384));
  bench->add_option("--ascans", flags->ascans, "of a B-scan")->check(CLI::Range(1, 65536));
  bench->add_option("--bscans", flags->bscans, "of a volume")->check(CLI::Range(1, 65536));
  bench
      ->add_option("--rate", flags->rate_hz,
                   "latency: A-scans per second; default half of what the machine can stream")
      ->check(CLI::Range(1.0, 1e9));
  bench->add_option("--mib", flags->mib, "storage: of a file, 32 to 65536; default 512")
      ->check(CLI::Range(32, 65536));
  bench->add_option("--backend", flags->backend, "of its own daemon: auto | host | cuda")
      ->check(OneOf({"auto", "host", "cuda"}));
  bench
      ->add_option(
          "--directory", flags->directory,
          "its own daemon keeps its files here (what commits and storage are measured on); "
          "default: the temporary directory")
      ->check(CLI::ExistingDirectory);
  bench->callback([&session, flags] { Bench(session, *flags); });
}

}  // namespace octavo::cli

#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <string>

#include "octavo/v1/session.grpc.pb.h"
#include "octavo/v1/system.grpc.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/host_memory_text.h"
#include "client/cpp/cli/list_flags.h"
#include "client/cpp/cli/owner_text.h"
#include "client/cpp/cli/terminal.h"
#include "client/cpp/cli/words.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {
namespace {

/// Why a tier is off, and what turns it on. A folder that cannot be used is no reason: octavod does
/// not start with one.
std::string OffText(v1::Tier tier) {
  if (tier == v1::TIER_HOST)
    return "off: spill.host_bytes of the server's configuration is 0, or its host has no memory "
           "left "
           "for it (more bytes turn it on)";
  return "off: spill.disk_bytes of the server's configuration is 0 (more bytes turn it on, in "
         "spill.dir)";
}

void Memory(Session& session) {
  v1::GetMemoryResponse memory;
  if (!Check(session, v1::SystemService::NewStub(session.channel())
                          ->GetMemory(session.Context().get(), {}, &memory)))
    return;
  if (session.json) {
    PrintJson(memory);
    return;
  }
  const auto bytes = [](int64_t n) { return Bytes(static_cast<double>(n)); };
  std::cout << HostMemoryText(memory.host()) << "\n";
  for (const auto& device : memory.devices()) {
    std::cout << device.name() << "  budget " << bytes(device.budget_bytes()) << ": reserved "
              << bytes(device.reserved_bytes()) << ", held " << bytes(device.held_bytes())
              << ", buffers " << bytes(device.buffer_bytes()) << ", cached "
              << bytes(device.cached_bytes()) << ", detached " << bytes(device.detached_bytes())
              << ", free " << bytes(device.free_bytes()) << " (most ever "
              << bytes(device.peak_bytes()) << ")\n";
    for (const auto& holder : memory.holders()) {
      if (holder.device() != device.name()) continue;
      std::cout << "  " << bytes(holder.bytes()) << "  " << InWords(holder.kind())
                << (holder.name().empty() ? "" : "  " + holder.name())
                << (holder.title().empty() ? "" : "  " + Printable(holder.title()))
                << (holder.session().empty() ? "" : "  " + holder.session()) << "\n";
    }
  }
  for (const auto& tier : memory.tiers()) {
    std::cout << "tier " << ShortName(tier.tier()) << ": ";
    if (tier.quota_bytes() == 0) {
      std::cout << OffText(tier.tier()) << "\n";
      continue;
    }
    std::cout << tier.volumes() << " volumes, " << bytes(tier.used_bytes()) << " of "
              << bytes(tier.quota_bytes()) << "; " << bytes(tier.spilled_bytes()) << " spilled, "
              << bytes(tier.restored_bytes()) << " restored, " << tier.failures() << " failures"
              << (tier.mirrors() == 0 ? ""
                                      : "; " + std::to_string(tier.mirrors()) + " mirrors of " +
                                            bytes(tier.mirror_bytes()))
              << (tier.path().empty()
                      ? ""
                      : "; " + tier.path() + ", " + bytes(tier.disk_free_bytes()) + " free")
              << "\n";
  }
}

void PrintSession(Session& session, const v1::ClientSession& one) {
  if (session.json) {
    PrintJson(one);
    return;
  }
  std::cout << one.name() << "  " << (one.client().empty() ? "-" : Printable(one.client())) << "  "
            << (one.alive() ? "alive, expires in " + Seconds(SecondsUntil(one.expire_time()))
                            : "EXPIRED")
            << "  " << one.volumes() << " volumes, " << one.leases() << " leases, "
            << Bytes(static_cast<double>(one.bytes())) << OwnerText(one) << "\n";
}

void PrintLease(Session& session, const v1::LeaseGrant& lease) {
  if (session.json) {
    PrintJson(lease);
    return;
  }
  std::cout << lease.resource() << "  "
            << (lease.mode() == v1::LEASE_MODE_EXCLUSIVE ? "EXCLUSIVE" : "SHARED") << "  fence "
            << lease.fence() << "  "
            << Printable(lease.holder().empty() ? lease.session() : lease.holder())
            << (lease.has_expire_time() ? "  for " + Seconds(SecondsUntil(lease.expire_time()))
                                        : "")
            << OwnerText(lease) << (lease.token().empty() ? "" : "  token " + lease.token())
            << "\n";
}

}  // namespace

void AddSessionCommands(CLI::App& app, Session& session) {
  app.add_subcommand("memory", "the holders of device memory, and the spilled volumes")
      ->callback([&session] { Memory(session); });
  const ListFlags flags;
  auto* sessions =
      app.add_subcommand("sessions", "sessions of clients, which end when a client is gone");
  flags.AddTo(sessions, "alive = true AND volumes > 0");
  sessions->callback([&session, flags] {
    auto stub = v1::SessionService::NewStub(session.channel());
    flags.EachPage<v1::ListSessionsResponse>(
        session, v1::ListSessionsRequest(), "",
        [&](auto* context, const auto& page, auto* answer) {
          return stub->ListSessions(context, page, answer);
        },
        [&](const auto& answer) {
          for (const auto& one : answer.sessions()) PrintSession(session, one);
        });
  });

  auto* lease = app.add_subcommand("lease", "leases of volumes and buffers")->require_subcommand(1);
  auto resource = std::make_shared<std::string>();
  auto token = std::make_shared<std::string>();
  auto holder = std::make_shared<std::string>("octavo");
  auto seconds = std::make_shared<double>(60);
  auto wait = std::make_shared<double>(0);
  auto exclusive = std::make_shared<bool>(false);
  auto* list = lease->add_subcommand("list", "all leases");
  const ListFlags list_flags;
  list_flags.AddTo(list, "resource = volumes/...", "expire_time, fence");
  list->callback([&session, list_flags] {
    auto stub = v1::SessionService::NewStub(session.channel());
    list_flags.EachPage<v1::ListLeasesResponse>(
        session, v1::ListLeasesRequest(), "",
        [&](auto* context, const auto& page, auto* answer) {
          return stub->ListLeases(context, page, answer);
        },
        [&](const auto& answer) {
          for (const auto& one : answer.leases()) PrintLease(session, one);
        });
  });
  auto* acquire = lease->add_subcommand("acquire", "take one; prints its token");
  acquire->add_option("resource", *resource, "volumes/... or buffers/...")->required();
  acquire->add_flag("--exclusive", *exclusive, "alone (buffers only)");
  acquire->add_option("--seconds", *seconds, "until it expires (default 60)");
  acquire->add_option("--wait", *wait, "seconds to stand in the queue; 0 = try");
  acquire->add_option("--holder", *holder, "for people");
  acquire->callback([&session, resource, exclusive, seconds, wait, holder] {
    v1::AcquireLeaseRequest request;
    request.set_resource(*resource);
    request.set_mode(*exclusive ? v1::LEASE_MODE_EXCLUSIVE : v1::LEASE_MODE_SHARED);
    if (*seconds != 0) *request.mutable_ttl() = DurationOf(*seconds);
    if (*wait != 0) *request.mutable_wait() = DurationOf(*wait);
    request.set_holder(*holder);
    v1::AcquireLeaseResponse answer;
    grpc::ClientContext context;  // as long as it waits
    if (Check(session, v1::SessionService::NewStub(session.channel())
                           ->AcquireLease(&context, request, &answer)))
      PrintLease(session, answer.lease());
  });
  auto* renew = lease->add_subcommand("renew", "keep it for longer");
  renew->add_option("token", *token, "of `lease acquire`")->required();
  renew->add_option("--seconds", *seconds, "from now (default 60)");
  renew->callback([&session, token, seconds] {
    v1::RenewLeaseRequest request;
    request.set_token(*token);
    *request.mutable_ttl() = DurationOf(*seconds);
    v1::RenewLeaseResponse answer;
    if (Check(session, v1::SessionService::NewStub(session.channel())
                           ->RenewLease(session.Context().get(), request, &answer))) {
      PrintLease(session, answer.lease());
    }
  });
  auto* release = lease->add_subcommand(
      "release", "give it back, or end another's lease of what is yours (--fence)");
  auto fence = std::make_shared<uint64_t>(0);
  auto* const by_token = release->add_option("token", *token, "of `lease acquire`");
  auto* const by_fence =
      release->add_option("--fence", *fence, "of `lease list`, instead of the token")
          ->check(CLI::Range(uint64_t{1}, std::numeric_limits<uint64_t>::max()));
  by_fence->excludes(by_token);
  release->callback([&session, token, fence] {
    if (token->empty() && *fence == 0) throw CLI::RequiredError("token or --fence");
    v1::ReleaseLeaseRequest request;
    request.set_token(*token);
    request.set_fence(*fence);
    v1::ReleaseLeaseResponse answer;
    Check(session, v1::SessionService::NewStub(session.channel())
                       ->ReleaseLease(session.Context().get(), request, &answer));
  });
}

}  // namespace octavo::cli

#pragma once

// A scan session without an engine, from its start to its end.

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

#include "server/scan/scan_session.h"
#include "tests/support/news.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine::testing {

/// Observes a scan and commits nothing for it.
class NewsOfScan final : public ScanObserver {
 public:
  explicit NewsOfScan(octavo::testing::News* news) : news_(*news) {}
  void OnScanChanged(const std::string&) override { news_.Tell(); }
  void OnAcquisitionOver(const std::string&, const std::string&) override {}
  void OnCommitWanted(const std::string&, const CommitOptions&) override {}

 private:
  octavo::testing::News& news_;
};

/// Spills and commits nothing.
class NoRelief : public SlotRelief {
 public:
  bool Spill(const std::string&, Tier) override { return false; }
  int64_t SpillFailures(const std::string&) override { return 0; }
  bool CommitsPending(const std::string&) override { return false; }
};

/// Adds the rest that a session needs to `given` (device, ledger, store, publisher, clock ...). The
/// session calls `observer` at each change.
inline SessionContext WithObserver(SessionContext given, ScanObserver* observer) {
  if (given.frames == nullptr) given.frames = std::make_shared<FramePool>(given.device, 16 << 20);
  if (given.relief == nullptr) given.relief = std::make_shared<NoRelief>();
  given.server_id = "testtest";
  given.observer = observer;
  return given;
}

/// Runs a scan until it has ended.
inline ScanStatus RunToTheEnd(const std::string& name, const ResolvedScan& scan,
                              std::unique_ptr<Source> source, SessionContext given) {
  octavo::testing::News news;
  NewsOfScan observer(&news);
  auto charges =
      given.ledger->Reserve(given.device_index, name, "", Needs(scan, *given.device), nullptr);
  EXPECT_THAT(charges.status(), octavo::testing::IsOk());
  if (!charges.ok()) return {};
  auto session = ScanSession::Create(name, scan, std::move(source), *std::move(charges),
                                     WithObserver(std::move(given), &observer));
  EXPECT_THAT(session.status(), octavo::testing::IsOk());
  if (!session.ok()) return {};
  (*session)->Start();
  news.Await([&] { return (*session)->finished(); });
  return (*session)->Status();
}

}  // namespace octavo::engine::testing

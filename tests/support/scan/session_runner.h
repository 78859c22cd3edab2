#pragma once

// A scan session without an engine around it, from its start to its end.

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

#include "server/scan/scan_session.h"
#include "tests/support/news.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine::testing {

/// `given` (device, ledger, store, publisher, clock ...) and the other dependencies of a session,
/// which commits and spills nothing; `news` is signalled on each change.
inline SessionContext WithNews(SessionContext given, octavo::testing::News* news) {
  if (given.frames == nullptr) given.frames = std::make_shared<FramePool>(given.device, 16 << 20);
  given.server_id = "testtest";
  given.auto_commit = [](const std::string&, const CommitOptions&) {};
  given.commits_pending = [](const std::string&) { return false; };
  given.changed = [news] { news->Tell(); };
  given.acquired = [] {};
  return given;
}

/// Runs a scan until it has ended.
inline ScanStatus RunToTheEnd(const std::string& name, const ResolvedScan& scan,
                              std::unique_ptr<Source> source, SessionContext given) {
  octavo::testing::News news;
  auto charges = given.ledger->Reserve(given.device_index, name, "",
                                       ScanSession::Needs(scan, *given.device), nullptr);
  EXPECT_THAT(charges.status(), octavo::testing::IsOk());
  if (!charges.ok()) return {};
  auto session = ScanSession::Create(name, scan, std::move(source), *std::move(charges),
                                     WithNews(std::move(given), &news));
  EXPECT_THAT(session.status(), octavo::testing::IsOk());
  if (!session.ok()) return {};
  (*session)->Start();
  news.Await([&] { return (*session)->finished(); });
  return (*session)->Status();
}

}  // namespace octavo::engine::testing

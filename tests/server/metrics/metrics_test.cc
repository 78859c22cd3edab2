// The Prometheus page over HTTP, as a scraper sees it, on an engine that has run nothing yet.
// tests/integration/service/lifecycle_test.py tests the figures after a scan, on the daemon.

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <netinet/in.h>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "gtest/gtest.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/unique_fd.h"
#include "server/metrics/exporter.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::metrics {
namespace {

using ::octavo::testing::IsError;

UniqueFd Connect(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return fd;
}

std::string Get(const std::string& address) {
  const UniqueFd fd = Connect(address);
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char part[4096];
  for (ssize_t n; (n = ::recv(fd.get(), part, sizeof part, 0)) > 0;)
    answer.append(part, static_cast<size_t>(n));
  return answer;
}

class MetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/octavo-metrics-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    std::vector<std::string> report;
    ASSERT_OK_AND_ASSIGN(
        store_, storage::CommitStore::Open(directory_ + "/state", {directory_ + "/data"}, &report));
    ASSERT_OK_AND_ASSIGN(OpenedDevices opened, OpenDevices("host"));
    engine::EngineConfig config;
    config.memory_bytes = 64 << 20;
    config.frame_pool_bytes = 16 << 20;
    config.server_id = "test0000";
    config.software = "octavo test";
    ASSERT_OK_AND_ASSIGN(engine_,
                         engine::Engine::Create(config, std::move(opened.devices), store_.get()));
    ASSERT_OK_AND_ASSIGN(exporter_, Exporter::Start("127.0.0.1:0", {.engine = engine_.get(),
                                                                    .version = "1.2.3",
                                                                    .backend = "host"}));
  }
  void TearDown() override {
    exporter_ = nullptr;
    engine_ = nullptr;
    store_ = nullptr;
    std::filesystem::remove_all(directory_);
  }

  std::string directory_;
  std::unique_ptr<storage::CommitStore> store_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Exporter> exporter_;
};

TEST_F(MetricsTest, PageIsServedOnAFreePort) {
  const std::string page = Get(exporter_->address());
  EXPECT_EQ(page.rfind("HTTP/1.1 200", 0), 0u) << page.substr(0, 200);
  EXPECT_NE(page.find("octavo_build_info{version=\"1.2.3\",backend=\"host\"} 1"),
            std::string::npos);
  EXPECT_NE(page.find("octavo_device_memory_bytes{device=\"devices/0\",kind=\"budget\"} 67108864"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("octavo_device_healthy{device=\"devices/0\",backend=\"host\"} 1"),
            std::string::npos);
}

// Prometheus' own rules: base units, _total on counters only, each family once, and labels from the
// fixed set.
TEST_F(MetricsTest, NamesKeepTheRules) {
  std::istringstream page(Get(exporter_->address()));
  const std::regex type("# TYPE (octavo_[a-z][a-z0-9_]*) (counter|gauge|histogram)");
  const std::regex label("[{,]([a-z_]+)=\"");
  const std::set<std::string> labels = {"device", "kind",  "stage",  "product", "policy",
                                        "reason", "state", "root",   "backend", "version",
                                        "tier",   "mode",  "result", "le"};
  std::set<std::string> families, helped;
  for (std::string line; std::getline(page, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.rfind("# HELP octavo_", 0) == 0) helped.insert(line.substr(7, line.find(' ', 7) - 7));
    std::smatch match;
    if (line.rfind("# TYPE octavo_", 0) == 0) {
      ASSERT_TRUE(std::regex_match(line, match, type)) << line;
      const std::string name = match[1], kind = match[2];
      EXPECT_TRUE(families.insert(name).second) << name << " twice";
      EXPECT_EQ(name.ends_with("_total"), kind == "counter") << line;
      EXPECT_FALSE(std::regex_search(
          name, std::regex("_(ms|us|ns|milliseconds|kb|mb|gb|percent|count|sum|bucket)(_|$)")))
          << name;
      if (kind == "histogram") EXPECT_TRUE(name.ends_with("_seconds")) << name;
    } else if (line.rfind("octavo_", 0) == 0) {
      for (auto it = std::sregex_iterator(line.begin(), line.end(), label);
           it != std::sregex_iterator(); ++it) {
        EXPECT_TRUE(labels.contains((*it)[1])) << line;
      }
    }
  }
  EXPECT_EQ(families, helped);
  for (const char* name : {"octavo_scans",
                           "octavo_scans_finished_total",
                           "octavo_scan_rejected_total",
                           "octavo_scans_resumed_total",
                           "octavo_scans_not_resumed",
                           "octavo_records_total",
                           "octavo_blocks_dropped_total",
                           "octavo_source_overruns_total",
                           "octavo_ring_occupancy_ratio",
                           "octavo_stage_seconds",
                           "octavo_volume_latency_seconds",
                           "octavo_frame_latency_seconds",
                           "octavo_volumes",
                           "octavo_volumes_finished_total",
                           "octavo_chains_skipped_total",
                           "octavo_volume_missing_ascans_total",
                           "octavo_voxels_total",
                           "octavo_voxels_clipped_total",
                           "octavo_oldest_held_seconds",
                           "octavo_commit_seconds",
                           "octavo_commit_bytes_total",
                           "octavo_commit_errors_total",
                           "octavo_operations_running",
                           "octavo_operations_finished_total",
                           "octavo_operations_kept",
                           "octavo_operations_forgotten_total",
                           "octavo_lost_at_start",
                           "octavo_history_up",
                           "octavo_history_waiting_rows",
                           "octavo_history_rows_total",
                           "octavo_history_dropped_total",
                           "octavo_history_errors_total",
                           "octavo_audit_up",
                           "octavo_audit_waiting_lines",
                           "octavo_audit_lines_total",
                           "octavo_audit_dropped_total",
                           "octavo_audit_left_out_total",
                           "octavo_audit_errors_total",
                           "octavo_subscribers",
                           "octavo_frames_sent_total",
                           "octavo_frames_dropped_total",
                           "octavo_streams_cut_total",
                           "octavo_allocation_failures_total",
                           "octavo_device_memory_bytes",
                           "octavo_device_healthy",
                           "octavo_admission_refusals_total",
                           "octavo_quota_refusals_total",
                           "octavo_held_volumes",
                           "octavo_stop_volumes",
                           "octavo_stop_bytes",
                           "octavo_stop_disk_bytes_per_second",
                           "octavo_stop_expected_seconds",
                           "octavo_stop_limit_seconds",
                           "octavo_spill_tier_bytes",
                           "octavo_spill_failures_total",
                           "octavo_spilled_bytes_total",
                           "octavo_restored_bytes_total",
                           "octavo_mirrored_volumes",
                           "octavo_mirrored_bytes",
                           "octavo_unmirrored_volumes",
                           "octavo_unmirrored_bytes",
                           "octavo_mirror_room_bytes",
                           "octavo_mirror_failures_total",
                           "octavo_mark_failures_total",
                           "octavo_spill_seconds",
                           "octavo_restore_seconds",
                           "octavo_storage_backend",
                           "octavo_storage_cufile_errors_total",
                           "octavo_sessions",
                           "octavo_sessions_expired_total",
                           "octavo_grants",
                           "octavo_leases",
                           "octavo_leases_granted_total",
                           "octavo_leases_expired_total",
                           "octavo_lease_refusals_total",
                           "octavo_lease_waits_total",
                           "octavo_lease_wait_seconds_total",
                           "octavo_buffers",
                           "octavo_buffer_owners",
                           "octavo_buffer_largest_owner_bytes",
                           "octavo_buffer_quota_bytes",
                           "octavo_buffer_replicas",
                           "octavo_buffer_bytes",
                           "octavo_buffer_written_bytes_total",
                           "octavo_buffer_forwarded_bytes_total",
                           "octavo_buffer_read_bytes_total",
                           "octavo_buffer_operations_total",
                           "octavo_buffers_finished_total",
                           "octavo_buffer_imports",
                           "octavo_buffer_imported_bytes",
                           "octavo_buffer_refusals_total",
                           "octavo_tokens",
                           "octavo_token_reloads_total",
                           "octavo_token_reload_errors_total",
                           "octavo_tls_certificate_not_after_seconds",
                           "octavo_tls_reloads_total",
                           "octavo_tls_reload_errors_total",
                           "octavo_tls_failures_total",
                           "octavo_certificate_lines",
                           "octavo_certificate_reloads_total",
                           "octavo_certificate_reload_errors_total",
                           "octavo_build_info"}) {
    EXPECT_TRUE(families.contains(name)) << name << " is not on the page";
  }
}

TEST_F(MetricsTest, HistogramBucketsAreCumulativeAndEndAtInfinity) {
  std::istringstream page(Get(exporter_->address()));
  double last = 0;
  std::string last_bound;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("octavo_commit_seconds_bucket", 0) != 0) continue;
    const double n = std::stod(line.substr(line.rfind(' ') + 1));
    EXPECT_GE(n, last) << line;
    last = n;
    last_bound = line.substr(line.find("le=") + 4, 4);
  }
  EXPECT_EQ(last_bound, "+Inf");
}

TEST(HistogramTest, SumsAreTheSameInAnyOrder) {
  std::mt19937_64 random(octavo::testing::FreshSeed());
  std::lognormal_distribution<double> seconds(-7, 4);
  std::vector<engine::Histogram> parts(200);
  double plain = 0;
  for (auto& part : parts) {
    for (int i = 0; i < 50; ++i) {
      const double value = seconds(random);
      part.Add(value);
      plain += value;
    }
  }
  engine::Histogram one;
  for (const auto& part : parts) one.Merge(part);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(parts.begin(), parts.end(), random);
    engine::Histogram left, right;
    for (size_t i = 0; i < parts.size(); ++i) (i % 3 == 0 ? left : right).Merge(parts[i]);
    left.Merge(right);
    ASSERT_EQ(left.sum, one.sum);
  }
  EXPECT_NEAR(one.sum, plain, 1e-6 * static_cast<double>(one.count));
}

// A port scanner or a broken scraper that connects and sends nothing must not block the page for
// others.
TEST_F(MetricsTest, SilentConnectionsDoNotKeepTheScraperOut) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(Connect(exporter_->address()));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(Get(exporter_->address()).find("octavo_build_info"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

TEST_F(MetricsTest, AnAddressInUseIsRefusedWithItsName) {
  EXPECT_THAT(Exporter::Start(exporter_->address(),
                              {.engine = engine_.get(), .version = "1", .backend = "host"}),
              IsError(absl::StatusCode::kFailedPrecondition,
                      "metrics.listen: cannot listen on " + exporter_->address()));
}

}  // namespace
}  // namespace octavo::metrics

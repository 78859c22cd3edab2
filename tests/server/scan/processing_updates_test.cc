#include "server/scan/processing_updates.h"

#include <functional>
#include <string>
#include <vector>

#include "tests/support/device/backend_param.h"
#include "tests/support/scan/scan_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::SharedDevice;
using testing::FewAscans;
using testing::ScanSurroundings;

class ProcessingUpdatesTest : public ::testing::Test {
 protected:
  /// The scan with other levels.
  ResolvedScan With(float level_hi) const {
    ResolvedScan updated = of_.scan;
    updated.chain.level_hi = level_hi;
    updated.spec.processing.level_hi = level_hi;
    return updated;
  }
  int64_t Reserved(int device = 0) { return of_.ledger.UseOf(device).reserved; }
  ScanStatus Told(ProcessingUpdates& updates) {
    ScanStatus status;
    updates.AddTo(&status);
    return status;
  }

  Device& device_ = SharedDevice("host");
  ScanSurroundings of_{FewAscans([](ScanSpec& spec) {
    spec.title = "an eye";
    spec.labels = {{"who", "me"}};
  })};
  const std::vector<ScanDevice> one_ = {{.device = &device_, .index = 3, .charges = {}}};
  const std::vector<ScanDevice> two_ = {{.device = &device_, .index = 3, .charges = {}},
                                        {.device = &device_, .index = 5, .charges = {}}};
};

TEST_F(ProcessingUpdatesTest, TheRequestIsToldAsItWasGiven) {
  ProcessingUpdates updates("scans/x", of_.scan, &of_.ledger, one_);
  ScanStatus told = Told(updates);
  EXPECT_EQ(told.name, "scans/x");
  EXPECT_EQ(told.spec.title, "an eye");
  EXPECT_EQ(told.device, "devices/3");
  EXPECT_TRUE(told.spread_devices.empty());
  EXPECT_EQ(told.plan, "");
  updates.Describe("the chain");
  EXPECT_NE(Told(updates).plan.find("the chain\n"), std::string::npos);
  ProcessingUpdates spread("scans/x", of_.scan, &of_.ledger, two_);
  EXPECT_EQ(Told(spread).spread_devices, (std::vector<std::string>{"devices/3", "devices/5"}));
}

TEST_F(ProcessingUpdatesTest, AnOfferIsTakenOnce) {
  ProcessingUpdates updates("scans/x", of_.scan, &of_.ledger, two_);
  ProcessingUpdates::Update update;
  EXPECT_FALSE(updates.Take(&update));
  ASSERT_THAT(updates.Offer(With(40)), IsOk());
  EXPECT_EQ(updates.Latest().chain.level_hi, 40);
  EXPECT_EQ(Told(updates).spec.processing.level_hi, 40);
  EXPECT_NE(Told(updates).plan, "");
  ASSERT_TRUE(updates.Take(&update));
  EXPECT_EQ(update.scan.chain.level_hi, 40);
  ASSERT_EQ(update.processors.size(), 2u);
  EXPECT_NE(update.processors[0], nullptr);
  EXPECT_NE(update.processors[0], update.processors[1]);
  EXPECT_FALSE(updates.Take(&update));
}

TEST_F(ProcessingUpdatesTest, ALaterOfferReplacesAnEarlierOne) {
  ProcessingUpdates updates("scans/x", of_.scan, &of_.ledger, one_);
  ASSERT_THAT(updates.Offer(With(40)), IsOk());
  const int64_t one = Reserved(3);
  ASSERT_THAT(updates.Offer(With(50)), IsOk());
  EXPECT_EQ(Reserved(3), one) << "the charge of the earlier one has ended";
  ProcessingUpdates::Update update;
  ASSERT_TRUE(updates.Take(&update));
  EXPECT_EQ(update.scan.chain.level_hi, 50);
  EXPECT_EQ(update.processors[0]->config().level_hi, 50);
  EXPECT_FALSE(updates.Take(&update));
}

TEST_F(ProcessingUpdatesTest, AChargeEndsWithItsProcessor) {
  ProcessingUpdates updates("scans/x", of_.scan, &of_.ledger, two_);
  ASSERT_THAT(updates.Offer(With(40)), IsOk());
  const int64_t bytes = SpectralProcessor::DeviceBytes(of_.scan.chain, device_);
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(Reserved(3), bytes);
  EXPECT_EQ(Reserved(5), bytes);
  ProcessingUpdates::Update update;
  ASSERT_TRUE(updates.Take(&update));
  EXPECT_EQ(Reserved(3), bytes) << "the one who took it has it";
  update.processors.pop_back();
  EXPECT_EQ(Reserved(3), bytes);
  EXPECT_EQ(Reserved(5), 0);
  update.processors.clear();
  EXPECT_EQ(Reserved(3), 0);
}

TEST_F(ProcessingUpdatesTest, AnOfferThatCannotBeMadeLeavesTheEarlierOne) {
  Ledger small({0, 0, 0, SpectralProcessor::DeviceBytes(of_.scan.chain, device_), 0, 0});
  ProcessingUpdates updates("scans/x", of_.scan, &small, one_);
  ASSERT_THAT(updates.Offer(With(40)), IsOk());
  const std::string plan = Told(updates).plan;
  EXPECT_THAT(updates.Offer(With(50)), IsError(absl::StatusCode::kResourceExhausted, ""));
  EXPECT_EQ(Told(updates).spec.processing.level_hi, 40);
  EXPECT_EQ(Told(updates).plan, plan);
  ProcessingUpdates::Update update;
  ASSERT_TRUE(updates.Take(&update));
  EXPECT_EQ(update.scan.chain.level_hi, 40);
  EXPECT_EQ(update.processors[0]->config().level_hi, 40);
}

TEST_F(ProcessingUpdatesTest, AfterTheCloseNothingIsOfferedOrTaken) {
  ProcessingUpdates updates("scans/x", of_.scan, &of_.ledger, one_);
  ASSERT_THAT(updates.Offer(With(40)), IsOk());
  updates.Close();
  EXPECT_EQ(Reserved(3), 0);
  const absl::Status late = updates.Offer(With(50));
  EXPECT_THAT(late, IsError(absl::StatusCode::kFailedPrecondition, "scans/x has ended"));
  EXPECT_EQ(InfoOf(late).reason, Reason::kScanState);
  EXPECT_EQ(Reserved(3), 0);
  ProcessingUpdates::Update update;
  EXPECT_FALSE(updates.Take(&update));
  EXPECT_EQ(Told(updates).spec.processing.level_hi, 40) << "what was asked for stays";
}

TEST_F(ProcessingUpdatesTest, AScanThatHasEndedKeepsItsRequestAndNotItsTables) {
  of_.scan.chain.k_index.assign(100, 1.0);
  ProcessingUpdates updates("scans/x", of_.scan, &of_.ledger, one_);
  EXPECT_EQ(updates.Latest().chain.k_index.size(), 100u);
  updates.LetGo();
  EXPECT_TRUE(updates.Latest().chain.k_index.empty());
  EXPECT_EQ(Told(updates).spec.title, "an eye");
}

TEST_F(ProcessingUpdatesTest, TheMemoryOfARequestGrowsWithIt) {
  const auto bytes_of = [this](const std::function<void(ScanSpec&)>& change) {
    ResolvedScan scan = of_.scan;
    change(scan.spec);
    return ProcessingUpdates("scans/x", scan, &of_.ledger, one_).ListedBytes();
  };
  const int64_t plain = bytes_of([](ScanSpec&) {});
  const auto more = [&](const std::function<void(ScanSpec&)>& change) {
    return bytes_of(change) - plain;
  };
  EXPECT_EQ(more([](ScanSpec& s) { s.pattern.points_x_mm.assign(10, 0); }), 80);
  EXPECT_EQ(more([](ScanSpec& s) { s.pattern.points_y_mm.assign(10, 0); }), 80);
  EXPECT_EQ(more([](ScanSpec& s) { s.processing.k_polynomial.assign(10, 0); }), 80);
  EXPECT_EQ(more([](ScanSpec& s) { s.processing.k_wavelength_nm.assign(10, 0); }), 80);
  EXPECT_EQ(more([](ScanSpec& s) { s.processing.background_spectrum.assign(10, 0); }), 40);
  EXPECT_EQ(more([](ScanSpec& s) { s.processing.k_index.assign(10, 0); }), 80);
  EXPECT_EQ(more([](ScanSpec& s) { s.processing.window_values.assign(10, 0); }), 40);
  EXPECT_EQ(more([](ScanSpec& s) { s.processing.dispersion_phase.assign(10, 0); }), 40);
  EXPECT_EQ(more([](ScanSpec& s) { s.labels["site"] = "left"; }), 4 + 4 + 64);
  ProcessingUpdates updates("scans/x", of_.scan, &of_.ledger, one_);
  updates.Describe("the chain");
  EXPECT_EQ(updates.ListedBytes() - plain, std::ssize(Told(updates).plan));
}

}  // namespace
}  // namespace octavo::engine

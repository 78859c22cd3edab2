#include "server/tomography/axis.h"

#include <numbers>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

AxisResult Agreed() {
  AxisResult axis;
  axis.found.center = 130.25;
  axis.found.uncertainty = 0.05;
  axis.check = 130.75;
  axis.check_method = CenterMethod::kEntropy;
  axis.agreed = true;
  return axis;
}
AxisRemarks Remarks(const AxisResult& axis) {
  return RemarksOn(axis, 100, 150, 179 * std::numbers::pi / 180);
}

TEST(TomographyAxisTest, AnAxisThatTwoMethodsAgreeOnNeedsNoWords) {
  EXPECT_THAT(Remarks(Agreed()).doubts, IsEmpty());
  EXPECT_THAT(Remarks(Agreed()).warnings, IsEmpty());
}

TEST(TomographyAxisTest, DoubtsSayWhereEachMethodPutsIt) {
  AxisResult axis = Agreed();
  axis.agreed = false;
  axis.method = CenterMethod::kPhaseCorrelation;
  axis.check = 140;
  EXPECT_THAT(Remarks(axis).doubts,
              ElementsAre(HasSubstr(
                  "in doubt: phase_correlation puts it at column 130.25, entropy at 140.00")));
  axis.found.at_edge = true;
  EXPECT_THAT(
      Remarks(axis).doubts,
      ElementsAre(HasSubstr("at the end of the search from 100.00 to 150.00; entropy at 140.00")));
  axis.found.at_edge = false;
  axis.method = axis.check_method = CenterMethod::kPairs;
  EXPECT_THAT(Remarks(axis).doubts,
              ElementsAre(HasSubstr("pairs puts it at column 130.25 of those searched, 100.00 to "
                                    "150.00, but at 140.00 if all of the detector counts")));
  axis.check.reset();
  EXPECT_THAT(Remarks(axis).doubts, ElementsAre(HasSubstr("no second method could look at it")));
  axis = Agreed();
  axis.found.determined = false;
  axis.found.uncertainty = 3;
  EXPECT_THAT(Remarks(axis).doubts, ElementsAre(HasSubstr("column 130.25 is a guess")));
  EXPECT_THAT(Remarks(axis).warnings, IsEmpty());
}

TEST(TomographyAxisTest, WarningsOfWhatIsToBeKnown) {
  AxisResult axis = Agreed();
  axis.found.uncertainty = 0.31;
  EXPECT_THAT(Remarks(axis).warnings, ElementsAre(HasSubstr("known to 0.31 columns only")));
  axis.found.uncertainty = 0.1;
  axis.outside = true;
  axis.found.fitting_span_rad = std::numbers::pi;
  EXPECT_THAT(
      Remarks(axis).warnings,
      ElementsAre(HasSubstr("130.25, lies outside of the search from 100.00 to 150.00"),
                  HasSubstr("if the scan covers 180.00 degrees, not 179.00 as the angles say")));
  EXPECT_THAT(Remarks(axis).doubts, IsEmpty());
}

TEST(TomographyAxisTest, OverlapsInDoubt) {
  const OverlapConfig search{.angles = 360, .detectors = 200};
  EXPECT_THAT(DoubtsOf({.overlap = 30, .correlation = 0.9}, search), IsEmpty());
  EXPECT_THAT(DoubtsOf({.overlap = 4, .correlation = 0.9, .at_edge = true}, search),
              ElementsAre(HasSubstr("an end of the search from 4 to 200")));
  EXPECT_THAT(DoubtsOf({.overlap = 30, .correlation = 0.2}, search),
              ElementsAre(HasSubstr("correlation 0.20 at an overlap of 30.0 columns")));
}

}  // namespace
}  // namespace octavo::engine

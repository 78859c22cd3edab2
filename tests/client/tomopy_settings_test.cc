// The settings of tomopy-cli as flags of octavo recon.

#include "client/cpp/cli/tomopy_settings.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/cpp/cli/tomopy_values.h"

namespace octavo::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Given = std::map<std::string, std::string>;
using Flags = std::map<std::string, std::vector<std::string>>;

Flags FlagsFor(const Given& given) {
  const TomopySettings meant = FromTomopy(given);
  EXPECT_THAT(meant.refusals, IsEmpty());
  Flags flags;
  for (const auto& flag : meant.flags)
    EXPECT_TRUE(flags.emplace(flag.name, flag.values).second) << flag.name << " twice";
  return flags;
}

std::string RefusalOf(const Given& given) {
  const TomopySettings meant = FromTomopy(given);
  EXPECT_THAT(meant.refusals, SizeIs(1));
  return meant.refusals.empty() ? "" : meant.refusals.front().text;
}

TEST(TomopySettings, TheAxisIsTakenAsGridrecTakesIt) {
  EXPECT_EQ(FlagsFor({{"rotation-axis", "512"}}), (Flags{{"center", {"512"}}}));
  EXPECT_EQ(FlagsFor({{"rotation-axis", "295.25"}, {"rotation-axis-auto", "manual"}}),
            (Flags{{"center", {"295.25"}}}));
  EXPECT_EQ(FlagsFor({{"rotation-axis", "512"}, {"binning", "2"}}).at("center"),
            std::vector<std::string>{"513.5"});  // column 128 of fours
  EXPECT_EQ(
      FlagsFor(
          {{"rotation-axis", "512"}, {"binning", "2"}, {"reconstruction-algorithm", "astracgls"}})
          .at("center"),
      std::vector<std::string>{"511.5"});
  EXPECT_EQ(FlagsFor({{"rotation-axis", "10240.77"}}), (Flags{{"center", {"10240.77"}}}));
  EXPECT_EQ(FlagsFor({{"rotation-axis", "-1"}, {"rotation-axis-auto", "manual"}}),
            (Flags{{"center", {"middle"}}}));
  EXPECT_EQ(FlagsFor({{"rotation-axis", "512"}, {"rotation-axis-auto", "auto"}}),
            (Flags{{"center", {"auto"}}}));
  EXPECT_EQ(FlagsFor({{"rotation-axis", "512"}, {"rotation-axis-auto", "read_auto"}}), Flags{});
  EXPECT_THAT(RefusalOf({{"rotation-axis-auto", "yes"}}),
              "rotation-axis-auto is 'yes'; allowed read_auto, read_manual, manual, auto");
  const std::string why =
      FromTomopy({{"rotation-axis", "-7"}, {"rotation-axis-auto", "manual"}}).flags.at(0).why;
  EXPECT_EQ(why, "rotation-axis = -7 is not above 0");
  EXPECT_EQ(FromTomopy({{"rotation-axis-auto", "manual"}}).flags.at(0).why,
            "rotation-axis is not given");
  EXPECT_THAT(RefusalOf({{"rotation-axis", "middle"}}),
              "rotation-axis is 'middle'; allowed a number");
}

TEST(TomopySettings, TryingAxesNeedsOne) {
  // As tomopy-cli: from axis - width in steps of half a column, the end left out.
  EXPECT_EQ(FlagsFor({{"reconstruction-type", "try"},
                      {"rotation-axis-auto", "manual"},
                      {"rotation-axis", "300.5"},
                      {"center-search-width", "2"}}),
            (Flags{{"try-centers", {"298.5:302:0.5"}}, {"center", {"300.5"}}}));
  // ASTRA counts half a column more.
  EXPECT_EQ(FlagsFor({{"reconstruction-algorithm", "astrasirt"},
                      {"rotation-axis-auto", "manual"},
                      {"rotation-axis", "300.5"}})
                .at("center"),
            std::vector<std::string>{"300"});
  EXPECT_EQ(FlagsFor({{"reconstruction-type", "try"}}), Flags{});
  EXPECT_EQ(FlagsFor({{"reconstruction-type", "full"}}), Flags{});
  EXPECT_THAT(RefusalOf({{"reconstruction-type", "slice"}, {"nsino", "0.3"}}), HasSubstr("--rows"));
}

TEST(TomopySettings, Ranges) {
  EXPECT_EQ(FlagsFor({{"start-row", "10"}, {"end-row", "20"}}), (Flags{{"rows", {"10:20"}}}));
  EXPECT_EQ(FlagsFor({{"start-row", "10"}, {"end-row", "-1"}}), (Flags{{"rows", {"10:"}}}));
  EXPECT_EQ(FlagsFor({{"start-row", "0"}, {"end-row", "-1"}}), Flags{});
  EXPECT_EQ(FlagsFor({{"end-proj", "900"}}), (Flags{{"projections", {"0:900"}}}));
  EXPECT_EQ(FlagsFor({{"binning", "0"}}), Flags{});
  EXPECT_EQ(FlagsFor({{"binning", "1"}}), (Flags{{"bin", {"2"}}}));
  EXPECT_EQ(FlagsFor({{"binning", "2"}}), (Flags{{"bin", {"4"}}}));
  EXPECT_THAT(RefusalOf({{"binning", "3"}}), HasSubstr("binning is '3'; allowed 0, 1, 2"));
}

TEST(TomopySettings, Preparation) {
  EXPECT_EQ(FlagsFor({{"flat-correction-method", "standard"}, {"normalization-cutoff", "1.2"}}),
            (Flags{{"median", {"true"}}, {"cutoff", {"1.2"}}}));
  EXPECT_EQ(FlagsFor({{"flat-correction-method", "none"}}), (Flags{{"transmissions", {"true"}}}));
  EXPECT_EQ(FlagsFor({{"flat-correction-method", "air"}, {"air", "12"}}),
            (Flags{{"transmissions", {"true"}}, {"air", {"12", "12"}}}));
  EXPECT_EQ(FlagsFor({{"dark-zero", "True"}, {"minus-log", "False"}}),
            (Flags{{"darks", {"-"}}, {"no-log", {"true"}}}));
  EXPECT_EQ(FlagsFor({{"dark-zero", "True"}, {"flat-correction-method", "none"}}),
            (Flags{{"transmissions", {"true"}}}));  // which uses no dark fields
  EXPECT_EQ(FlagsFor({{"fix-nan-and-inf", "True"}}), (Flags{{"not-finite", {"6.0"}}}));
  EXPECT_EQ(FlagsFor({{"zinger-removal-method", "standard"}, {"zinger-level-projections", "500"}}),
            (Flags{{"outliers", {"3", "500"}}}));
  EXPECT_THAT(RefusalOf({{"dark-zero", "perhaps"}}), "dark-zero is 'perhaps'; allowed True, False");
  EXPECT_THAT(RefusalOf({{"reverse", "True"}}), HasSubstr("--angles 180:0:COUNT"));
  EXPECT_THAT(RefusalOf({{"sinogram-max-value", "3"}}), HasSubstr("allowed inf"));
  EXPECT_THAT(RefusalOf({{"beam-hardening-method", "standard"}}), HasSubstr("allowed none"));
}

std::vector<std::string> DifferencesOf(const Given& given) {
  std::vector<std::string> settings;
  for (const auto& refusal : FromTomopy(given).refusals) {
    if (refusal.differs) settings.push_back(refusal.setting);
  }
  return settings;
}

TEST(TomopySettings, AMistakeNamesWhatTomopyCliTakes) {
  // One list of values for each, however the setting is translated.
  for (const char* name :
       {"file-type", "rotation-axis-auto", "reconstruction-type", "binning", "save-format",
        "flat-correction-method", "zinger-removal-method", "beam-hardening-method",
        "remove-stripe-method", "retrieve-phase-method", "reconstruction-algorithm",
        "gridrec-filter", "sinogram-max-value", "nsino"}) {
    const TomopySettings meant = FromTomopy({{name, "wrong"}});
    ASSERT_THAT(meant.refusals, SizeIs(1)) << name;
    EXPECT_EQ(meant.refusals[0].text,
              absl::StrCat(name, " is 'wrong'; allowed ", *AllowedForTomopy(name, "wrong")));
    EXPECT_FALSE(meant.refusals[0].differs) << name;
  }
}

TEST(TomopySettings, WhatTomopyCliTakesIsNoMistake) {
  EXPECT_THAT(DifferencesOf({{"file-type", "mosaic"}}), ElementsAre("file-type = mosaic"));
  EXPECT_THAT(DifferencesOf({{"reconstruction-type", "slice"}}),
              ElementsAre("reconstruction-type = slice"));
  EXPECT_THAT(DifferencesOf({{"binning", "3"}}), ElementsAre("binning = 3"));
}

TEST(TomopySettings, WhatChangesThePictureIsNeverWithoutEffect) {
  EXPECT_THAT(DifferencesOf({{"sinogram-max-value", "3"}}), ElementsAre("sinogram-max-value = 3"));
  EXPECT_THAT(DifferencesOf({{"zinger-removal-method", "standard"}, {"zinger-level-white", "77"}}),
              ElementsAre("zinger-level-white = 77"));
  EXPECT_THAT(DifferencesOf({{"zinger-level-white", "77"}}), IsEmpty());  // no zingers are removed
  EXPECT_THAT(DifferencesOf({{"reconstruction-algorithm", "astrasirt"},
                             {"astrasirt-method", "SART_CUDA"},
                             {"astrasirt-bootstrap", "True"}}),
              ElementsAre("astrasirt-bootstrap = True", "astrasirt-method = SART_CUDA"));
  EXPECT_THAT(
      DifferencesOf({{"reconstruction-algorithm", "gridrec"}, {"astrasirt-bootstrap", "True"}}),
      IsEmpty());
  EXPECT_THAT(DifferencesOf({{"remove-stripe-method", "vo-all"}, {"vo-all-snr", "5"}}),
              ElementsAre("vo-all-snr = 5"));
  EXPECT_THAT(DifferencesOf({{"remove-stripe-method", "fw"}, {"fw-filter", "db5"}}), IsEmpty());
  EXPECT_THAT(DifferencesOf({{"remove-stripe-method", "fw"}, {"fw-filter", "haar"}}),
              ElementsAre("fw-filter = haar"));
  EXPECT_THAT(DifferencesOf({{"end-proj", "-5"}}), ElementsAre("end-proj = -5"));
  EXPECT_THAT(DifferencesOf({{"file-type", "flip_and_stich"}, {"rotation-axis-flip", "130"}}),
              ElementsAre("file-type = flip_and_stich", "rotation-axis-flip = 130"));
  EXPECT_THAT(DifferencesOf({{"rotation-axis-flip", "130"}}), IsEmpty());
  EXPECT_THAT(DifferencesOf({{"reconstruction-type", "try"},
                             {"rotation-axis-auto", "manual"},
                             {"rotation-axis", "300"},
                             {"nsino", "0.25"}}),
              ElementsAre("nsino = 0.25"));
  // It makes negative line integrals 0: only where there may be some.
  EXPECT_THAT(DifferencesOf({{"fix-nan-and-inf", "True"}}), IsEmpty());
  EXPECT_THAT(DifferencesOf({{"fix-nan-and-inf", "True"}, {"normalization-cutoff", "1.1"}}),
              ElementsAre("fix-nan-and-inf = True"));
  EXPECT_THAT(DifferencesOf({{"fix-nan-and-inf", "True"}, {"remove-stripe-method", "fw"}}),
              ElementsAre("fix-nan-and-inf = True"));
  // Values that tomopy-cli does not take either are mistakes.
  EXPECT_THAT(DifferencesOf({{"remove-stripe-method", "vo"}, {"binning", "7"}}), IsEmpty());
  EXPECT_THAT(FromTomopy({{"remove-stripe-method", "vo"}, {"binning", "7"}}).refusals, SizeIs(2));
}

TEST(TomopySettings, WhatIsDoneOtherwiseIsToldWithItsValue) {
  const auto otherwise = [](const Given& given) { return FromTomopy(given).otherwise; };
  EXPECT_THAT(otherwise({{"remove-stripe-method", "fw"}, {"fw-level", "7"}}),
              ElementsAre(HasSubstr("fw-level = 7: ")));
  EXPECT_THAT(otherwise({{"zinger-removal-method", "standard"}, {"zinger-level-white", "1000.0"}}),
              ElementsAre(HasSubstr("zinger-level-white = 1000.0: ")));
  EXPECT_THAT(otherwise({{"rotation-axis-auto", "read_manual"}, {"rotation-axis", "300"}}),
              ElementsAre(HasSubstr("rotation-axis-auto = read_manual: ")));
  EXPECT_THAT(otherwise({{"gridrec-padding", "False"}}),
              ElementsAre(HasSubstr("gridrec-padding = False: ")));
  EXPECT_THAT(otherwise({{"rotation-axis-auto", "auto"}, {"nsino", "0.2"}}),
              ElementsAre(HasSubstr("nsino = 0.2: ")));
}

TEST(TomopySettings, ACutoffNeedsNoWordOfTheMethod) {
  EXPECT_EQ(FlagsFor({{"normalization-cutoff", "0.9"}}), (Flags{{"cutoff", {"0.9"}}}));
  EXPECT_THAT(
      FromTomopy({{"normalization-cutoff", "0.9"}, {"flat-correction-method", "air"}}).no_effect,
      ElementsAre("normalization-cutoff = 0.9"));
}

TEST(TomopySettings, WhatDependsOnAMethodCountsWithItAlone) {
  EXPECT_EQ(FlagsFor({{"remove-stripe-method", "vo-all"}}), (Flags{{"rings", {"all"}}}));
  EXPECT_EQ(FlagsFor({{"remove-stripe-method", "fw"}, {"ti-alpha", "9"}}),
            (Flags{{"rings", {"wavelet"}}}));
  EXPECT_EQ(FlagsFor({{"remove-stripe-method", "none"}, {"fw-level", "3"}}), Flags{});
  EXPECT_THAT(FromTomopy({{"fw-level", "3"}}).no_effect, ElementsAre("fw-level = 3"));
  EXPECT_THAT(RefusalOf({{"remove-stripe-method", "fw"}, {"fw-level", "3"}}),
              HasSubstr("fw-level is '3'; allowed 7"));
  for (const char* method : {"ti", "sf"})
    EXPECT_THAT(RefusalOf({{"remove-stripe-method", method}}), HasSubstr("none, fw, vo-all"));
  EXPECT_EQ(RefusalOf({{"remove-stripe-method", "vo"}}),
            "remove-stripe-method is 'vo'; allowed none, fw, ti, sf, vo-all");
  EXPECT_EQ(FlagsFor({{"retrieve-phase-method", "none"}, {"energy", "35"}}), Flags{});
}

// tomopy.retrieve_phase of TomoPy 1.15.2, at a frequency in cycles per cm: lengths in cm, keV.
double FilterOfTomopy(double pixel_um, double distance_mm, double energy, double alpha,
                      double cycles_per_pixel) {
  const double pixel = pixel_um * 1e-4, distance = distance_mm / 10;  // as tomopy-cli calls it
  const double w = cycles_per_pixel / pixel;
  const double wavelength = 2 * 3.14159265359 * 6.58211928e-19 * 299792458e+2 / energy;
  const auto factor = [&](double w2) {
    return 1 / (wavelength * distance * w2 / (4 * 3.14159265359) + alpha);
  };
  return factor(w * w) / factor(0);
}

// METHOD_PAGANIN, as the contract defines it: lengths in m, k in rad per length.
double FilterOfOctavo(const std::vector<std::string>& phase, double bins, double cycles_per_pixel) {
  double numbers[4];
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(absl::SimpleAtod(phase[i], &numbers[i]));
  const double k = 2 * M_PI * cycles_per_pixel / (numbers[0] * 1e-6 * bins);
  const double wavelength = 1.2398419843e-9 / numbers[2];
  return 1 / (1 + numbers[3] * wavelength * numbers[1] * 1e-3 / (4 * M_PI) * k * k);
}

TEST(TomopySettings, PaganinIsTheFilterOfTomopy) {
  const struct {
    double pixel, distance, energy, alpha;
    int binning;
  } cases[] = {{1.17, 60, 20, 0.001, 0},
               {0.69, 250, 35, 1e-4, 0},
               {5, 3000, 60, 0.02, 1},
               {0.1, 12.5, 8.3, 2e-7, 2},
               {50, 0.5, 900, 2.5, 0}};
  for (const auto& one : cases) {
    const Given given = {{"retrieve-phase-method", "paganin"},
                         {"pixel-size", absl::StrFormat("%.17g", one.pixel)},
                         {"propagation-distance", absl::StrFormat("%.17g", one.distance)},
                         {"energy", absl::StrFormat("%.17g", one.energy)},
                         {"retrieve-phase-alpha", absl::StrFormat("%.17g", one.alpha)},
                         {"binning", absl::StrCat(one.binning)}};
    const TomopySettings meant = FromTomopy(given);
    EXPECT_THAT(meant.refusals, IsEmpty());
    const auto flag = std::find_if(meant.flags.begin(), meant.flags.end(),
                                   [](const auto& each) { return each.name == "phase"; });
    ASSERT_NE(flag, meant.flags.end());
    ASSERT_THAT(flag->values, SizeIs(4));
    EXPECT_THAT(flag->why, HasSubstr("TomoPy 1.15.2"));
    for (double f = 0; f <= 0.5; f += 1.0 / 64) {
      const double wanted = FilterOfTomopy(one.pixel, one.distance, one.energy, one.alpha, f);
      EXPECT_NEAR(FilterOfOctavo(flag->values, 1 << one.binning, f), wanted, 1e-7 * wanted)
          << one.alpha << " at " << f;
    }
  }
  // tomopy-cli's defaults, and those that are given.
  EXPECT_EQ(FlagsFor({{"retrieve-phase-method", "paganin"}}),
            (Flags{{"phase", {"1.17", "60", "20", "25.33029591"}}}));
  EXPECT_EQ(FlagsFor({{"retrieve-phase-method", "paganin"}, {"binning", "2"}, {"pixel-size", "4"}}),
            (Flags{{"bin", {"4"}}, {"phase", {"1", "60", "20", "25.33029591"}}}));
  const TomopySettings meant = FromTomopy(
      {{"retrieve-phase-method", "paganin"}, {"energy", "35"}, {"retrieve-phase-pad", "8"}});
  ASSERT_THAT(meant.flags, SizeIs(1));
  EXPECT_THAT(meant.flags[0].why, HasSubstr("(with energy = 35)"));
  EXPECT_THAT(meant.no_effect, ElementsAre("retrieve-phase-pad = 8"));
}

TEST(TomopySettings, PaganinThatCannotBeTheSameIsRefused) {
  const auto with = [](const char* name, const char* value) {
    return Given{{"retrieve-phase-method", "paganin"}, {name, value}};
  };
  EXPECT_THAT(RefusalOf(with("retrieve-phase-alpha", "0")),
              HasSubstr("retrieve-phase-alpha is '0'; allowed 2.54e-08 to 2.53"));
  EXPECT_THAT(RefusalOf(with("retrieve-phase-alpha", "3")),
              HasSubstr("delta / beta is 1e6 to 0.01"));
  EXPECT_THAT(RefusalOf(with("energy", "20000")),
              HasSubstr("energy is '20000'; allowed 1 to 1000 keV"));
  EXPECT_THAT(RefusalOf(with("pixel-size", "0.0001")), HasSubstr("allowed 0.001 to 1000 um"));
  EXPECT_THAT(RefusalOf(with("propagation-distance", "2000000")), HasSubstr("0.001 to 1000000 mm"));
  EXPECT_THAT(RefusalOf(with("pixel-size-auto", "True")), HasSubstr("pixel-size-auto is 'True'"));
  for (const auto& refusal : FromTomopy(with("energy", "20000")).refusals) {
    EXPECT_TRUE(refusal.differs);
    EXPECT_THAT(refusal.instead, ElementsAre("phase"));
  }
  // A distance of 0, and a step that tomopy-cli does not come to.
  EXPECT_EQ(FlagsFor(with("propagation-distance", "0")), Flags{});
  EXPECT_THAT(FromTomopy(with("propagation-distance", "0")).otherwise,
              ElementsAre(HasSubstr("it changes nothing")));
  const TomopySettings hard =
      FromTomopy({{"retrieve-phase-method", "paganin"}, {"beam-hardening-method", "standard"}});
  EXPECT_THAT(hard.no_effect, ElementsAre("retrieve-phase-method = paganin"));
  EXPECT_THAT(hard.refusals, SizeIs(1));
}

TEST(TomopySettings, Algorithms) {
  EXPECT_EQ(FlagsFor({{"reconstruction-algorithm", "gridrec"}, {"gridrec-padding", "False"}}),
            (Flags{{"algorithm", {"auto"}}, {"filter", {"parzen"}}}));
  EXPECT_EQ(FlagsFor({{"gridrec-filter", "shepp"}}), (Flags{{"filter", {"shepp-logan"}}}));
  EXPECT_EQ(
      FlagsFor({{"reconstruction-algorithm", "astrasirt"}, {"astrasirt-min-constraint", "0"}}),
      (Flags{{"algorithm", {"sirt"}}, {"iterations", {"200"}}, {"min", {"0"}}}));
  EXPECT_EQ(FlagsFor({{"reconstruction-algorithm", "astracgls"}, {"astracgls-num_iter", "30"}}),
            (Flags{{"algorithm", {"cgls"}}, {"iterations", {"30"}}}));
  EXPECT_EQ(FlagsFor({{"reconstruction-algorithm", "lprec"}, {"lprec-fbp-filter", "ramlak"}}),
            (Flags{{"algorithm", {"fourier"}}, {"filter", {"ramp"}}}));
  EXPECT_THAT(RefusalOf({{"reconstruction-algorithm", "lprec"}, {"lprec-method", "tv"}}),
              HasSubstr("lprec-method is 'tv'; allowed fbp"));
  EXPECT_THAT(RefusalOf({{"reconstruction-algorithm", "osem"}}), HasSubstr("astrasirt"));
  EXPECT_THAT(RefusalOf({{"gridrec-filter", "none"}}), HasSubstr("shepp"));
}

// Whatever its value is: none is left out without a word.
TEST(TomopySettings, EveryNameIsInAGroup) {
  for (const std::string& name : TomopyNames()) {
    for (const char* value : {"none", "True", "False", "3", "-1", "standard"}) {
      const Given methods[] = {{},
                               {{"remove-stripe-method", "fw"}},
                               {{"reconstruction-algorithm", "astrasirt"}},
                               {{"reconstruction-algorithm", "lprec"}},
                               {{"zinger-removal-method", "standard"}},
                               {{"rotation-axis-auto", "manual"}, {"reconstruction-type", "try"}}};
      for (Given given : methods) {
        given[name] = value;
        const TomopySettings meant = FromTomopy(given);
        std::string all;
        for (const auto& flag : meant.flags) all += flag.setting + "; " + flag.why + "; ";
        for (const auto& refusal : meant.refusals) all += refusal.setting + refusal.text + "; ";
        for (const auto& text : meant.otherwise) all += text + "; ";
        for (const auto& text : meant.no_effect) all += text + "; ";
        EXPECT_THAT(all, HasSubstr(name)) << value;
      }
    }
    EXPECT_TRUE(IsTomopyName(name));
  }
  EXPECT_FALSE(IsTomopyName("rotation-axes"));
}

const char* const kTexts[] = {"logs-home",        "parameter-file",   "file-name",
                              "camera-signal",    "corrected-signal", "save-folder",
                              "astrasirt-method", "astrasart-method", "astracgls-method"};

TEST(TomopyValues, EveryNameHasValues) {
  for (const std::string& name : TomopyNames()) {
    const bool text = std::find(std::begin(kTexts), std::end(kTexts), name) != std::end(kTexts);
    EXPECT_EQ(AllowedForTomopy(name, "no value of it").has_value(), !text) << name;
  }
  EXPECT_FALSE(AllowedForTomopy("rotation-axes", "abc").has_value());
}

TEST(TomopyValues, WhatTomopyCliAllows) {
  const struct {
    const char *name, *allowed;
    std::vector<std::string> right, wrong;
  } cases[] = {
      {"nsino", "a number from 0 to 1", {"0", "0.5", "1", "1e-1"}, {"-0.1", "1.01", "nan", "inf"}},
      {"binning", "0, 1, 2, 3", {"0", "3"}, {"4", "-1", "1.0", "1,2"}},
      {"nsino-per-chunk", "a whole number", {"0", "-8", "64"}, {"1.5", "1e3", ""}},
      {"start-row", "a whole number from 0", {"0", "2047"}, {"-1", "10.5", "9e99"}},
      {"end-row", "a whole number", {"-1", "2047"}, {"all", "99999999999999999999"}},
      {"energy", "a number above 0", {"20", "0.1"}, {"0", "-3", "20 keV"}},
      {"rotation-axis", "a number", {"-1.0", "512.25"}, {"nan", "inf", "512,25"}},
      {"sinogram-max-value", "a number, inf", {"inf", "3.5"}, {"nan", "-inf", "infinite"}},
      {"astrasirt-min-constraint", "a number, None", {"None", "-1", "0.5"}, {"none", "zero"}},
      {"verbose", "True, False", {"True", "False", "true"}, {"1", "yes", "on"}},
      {"save-format", "tiff, h5", {"tiff", "h5"}, {"TIFF", "zarr", "tiff h5"}},
      {"fw-filter",
       "haar, db5, sym5, sym16, db10, db16, db20, db30",
       {"haar", "db30"},
       {"db4", "db"}},
      {"reconstruction-mask-ratio", "a number from 0 to 1", {"0.95", "1.0"}, {"1.5", "-1"}}};
  for (const auto& one : cases) {
    for (const std::string& text : one.right)
      EXPECT_FALSE(AllowedForTomopy(one.name, text).has_value()) << one.name << " = " << text;
    for (const std::string& text : one.wrong)
      EXPECT_EQ(AllowedForTomopy(one.name, text), one.allowed) << one.name << " = " << text;
  }
}

// Also where the setting has no effect beside the others.
TEST(TomopyValues, AWrongOneIsAMistake) {
  const Given methods[] = {
      {},
      {{"remove-stripe-method", "fw"}},
      {{"remove-stripe-method", "ti"}},
      {{"retrieve-phase-method", "paganin"}},
      {{"beam-hardening-method", "standard"}},
      {{"flat-correction-method", "air"}},
      {{"reconstruction-algorithm", "astrasirt"}},
      {{"reconstruction-algorithm", "lprec"}, {"lprec-method", "tv"}},
      {{"zinger-removal-method", "standard"}},
      {{"fix-nan-and-inf", "True"}, {"reconstruction-mask", "True"}},
      {{"rotation-axis-auto", "manual"}, {"rotation-axis", "300"}, {"reconstruction-type", "try"}}};
  for (const std::string& name : TomopyNames()) {
    for (const char* value : {"abc", "nan", "-7.5", "", "1e400"}) {
      if (!AllowedForTomopy(name, value).has_value()) continue;
      for (Given given : methods) {
        given[name] = value;
        const std::string setting = name + " = " + value;
        const TomopySettings meant = FromTomopy(given);
        int mistakes = 0;
        for (const auto& refusal : meant.refusals) {
          if (refusal.setting != setting) continue;
          ++mistakes;
          EXPECT_FALSE(refusal.differs) << setting;
          EXPECT_THAT(refusal.instead, IsEmpty()) << setting;
          EXPECT_THAT(refusal.text, HasSubstr(name + " is '" + value + "'; allowed "));
        }
        EXPECT_EQ(mistakes, 1) << setting << " with " << given.begin()->first;
        EXPECT_THAT(meant.no_effect, testing::Not(Contains(setting)));
      }
    }
  }
}

TEST(TomopySettings, ARefusalNamesTheFlagThatSettlesIt) {
  const TomopySettings meant = FromTomopy({{"save-folder", "results/{file_name}"}});
  ASSERT_THAT(meant.refusals, SizeIs(1));
  EXPECT_THAT(meant.refusals[0].instead, Contains("output-dir"));
  EXPECT_THAT(meant.flags, IsEmpty());
  EXPECT_EQ(FlagsFor({{"save-format", "tiff"}}),
            (Flags{{"format", {"tiff"}}, {"tiff-stack", {"true"}}}));
  EXPECT_EQ(FlagsFor({{"save-format", "h5"}}), (Flags{{"format", {"hdf5"}}}));
  EXPECT_THAT(FromTomopy({{"save-folder", "{file_name_parent}_rec"}}).otherwise, SizeIs(1));
}

}  // namespace
}  // namespace octavo::cli

#include "client/cpp/cli/tomopy_values.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace octavo::cli {
namespace {

constexpr double kAny = -std::numeric_limits<double>::infinity(),
                 kNoEnd = std::numeric_limits<double>::infinity();

/// The values of a setting.
struct Values {
  enum Kind { kText, kSwitch, kWhole, kNumber, kWords };
  Kind kind = kText;
  double least = kAny, most = kNoEnd;
  bool above = false;      // than `least`, which is not allowed itself
  std::string words = "";  // separated by spaces: of kWords; of numbers: allowed, too
};

Values Whole(double least = kAny, double most = kNoEnd) {
  return {.kind = Values::kWhole, .least = least, .most = most};
}
Values Number(double least = kAny, double most = kNoEnd) {
  return {.kind = Values::kNumber, .least = least, .most = most};
}
Values NumberAbove(double least) {
  return {.kind = Values::kNumber, .least = least, .above = true};
}
Values NumberOr(const std::string& word) { return {.kind = Values::kNumber, .words = word}; }
Values Words(const std::string& words) { return {.kind = Values::kWords, .words = words}; }

std::map<std::string, Values> Table() {
  const Values on{.kind = Values::kSwitch}, text, whole = Whole(), number = Number(),
                                                  from_0 = Whole(0), from_1 = Whole(1),
                                                  positive = NumberAbove(0), at_least_0 = Number(0);
  const std::string materials =
      "Air Al Al2O3 Be Bi Cu Fe Ge Inconel625 LLZTO LuAG_Ce LYSO_Ce Mo Pb Si SS316 Ta Ti_6_4 W "
      "YAG_Ce";
  const Values filters = Words("none shepp cosine hann hamming ramlak parzen butterworth");
  std::map<std::string, Values> table = {
      {"logs-home", text},
      {"parameter-file", text},
      {"verbose", on},
      {"config-update", on},
      {"center-search-width", at_least_0},
      {"rotation-axis", number},
      {"rotation-axis-auto", Words("read_auto read_manual manual auto")},
      {"rotation-axis-flip", number},
      {"file-name", text},
      {"file-format", Words("dx anka australian als elettra esrf aps1id aps2bm aps5bm aps7bm "
                            "aps8bm aps13bm aps32id petraP05 tomcat xradia")},
      {"file-type", Words("standard flip_and_stich double_fov mosaic")},
      {"nsino", Number(0, 1)},
      {"nsino-per-chunk", whole},  // 0 and less: as many as there are processors
      {"binning", Words("0 1 2 3")},
      {"reverse", on},
      {"blocked-views", on},
      {"dark-zero", on},
      {"start-row", from_0},
      {"end-row", whole},  // less than 0: to the last one
      {"start-proj", from_0},
      {"end-proj", whole},
      {"scintillator-auto", on},
      {"pixel-size-auto", on},
      {"correct-camera-nonlinearity", on},
      {"camera-signal", text},
      {"corrected-signal", text},
      {"dx-update", on},
      {"blocked-views-start", number},
      {"blocked-views-end", number},
      {"zinger-removal-method", Words("none standard")},
      {"zinger-level-projections", at_least_0},
      {"zinger-level-white", at_least_0},
      {"zinger-size", from_1},
      {"flat-correction-method", Words("standard air none")},
      {"normalization-cutoff", positive},
      {"air", from_0},
      {"fix-nan-and-inf", on},
      {"fix-nan-and-inf-value", number},
      {"minus-log", on},
      {"sinogram-max-value", NumberOr("inf")},
      {"retrieve-phase-method", Words("none paganin")},
      {"energy", positive},
      {"propagation-distance", at_least_0},
      {"pixel-size", positive},
      {"retrieve-phase-alpha", at_least_0},
      {"retrieve-phase-alpha-try", on},
      {"retrieve-phase-pad", from_0},
      {"remove-stripe-method", Words("none fw ti sf vo-all")},
      {"vo-all-snr", at_least_0},
      {"vo-all-la-size", from_1},
      {"vo-all-sm-size", from_1},
      {"fw-sigma", at_least_0},
      {"fw-filter", Words("haar db5 sym5 sym16 db10 db16 db20 db30")},
      {"fw-level", from_1},
      {"fw-pad", on},
      {"ti-alpha", at_least_0},
      {"ti-nblock", from_0},
      {"sf-size", from_1},
      {"beam-hardening-method", Words("none standard")},
      {"source-distance", positive},
      {"scintillator-material", Words("LuAG_Ce LYSO_Ce YAG_Ce")},
      {"scintillator-thickness", at_least_0},
      {"center-row", number},
      {"sample-material", Words(materials)},
      {"reconstruction-type", Words("try slice full")},
      {"reconstruction-algorithm",
       Words("art astrasart astrasirt astracgls bart fpb gridrec lprec mlem osem ospml_hybrid "
             "ospml_quad pml_hybrid pml_quad sirt tv grad tikh")},
      {"reconstruction-mask", on},
      {"reconstruction-mask-ratio", Number(0, 1)},
      {"save-format", Words("tiff h5")},
      {"save-folder", text},
      {"gridrec-filter", filters},
      {"gridrec-padding", on},
      {"lprec-fbp-filter", filters},
      {"lprec-padding", on},
      {"lprec-method", Words("fbp grad cg tv tvl1 tve em")},
      {"lprec-num_iter", from_1},
      {"lprec-reg", at_least_0},
      {"lprec-num_gpu", from_1}};
  for (const char* const filter : {"filter-1-", "filter-2-", "filter-3-"}) {
    table[absl::StrCat(filter, "auto")] = on;
    table[absl::StrCat(filter, "material")] = Words(absl::StrCat("auto none ", materials));
    table[absl::StrCat(filter, "thickness")] = at_least_0;
  }
  for (const char* const algorithm : {"astrasirt-", "astrasart-"}) {
    table[absl::StrCat(algorithm, "min-constraint")] = NumberOr("None");
    table[absl::StrCat(algorithm, "max-constraint")] = NumberOr("None");
  }
  for (const char* const algorithm : {"astrasirt-", "astrasart-", "astracgls-"}) {
    table[absl::StrCat(algorithm, "proj-type")] = Words("cuda linear");
    table[absl::StrCat(algorithm, "method")] = text;  // the name of an algorithm of ASTRA's
    table[absl::StrCat(algorithm, "num_iter")] = from_1;
    table[absl::StrCat(algorithm, "bootstrap")] = on;
  }
  return table;
}

bool Allows(const Values& values, const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(values.words, ' ', absl::SkipEmpty());
  const bool is_word = std::find(words.begin(), words.end(), text) != words.end();
  int64_t whole = 0;
  double number = 0;
  switch (values.kind) {
    case Values::kText: return true;
    case Values::kSwitch:
      return absl::EqualsIgnoreCase(text, "true") || absl::EqualsIgnoreCase(text, "false");
    case Values::kWords: return is_word;
    case Values::kWhole:
      if (!absl::SimpleAtoi(text, &whole)) return false;
      number = static_cast<double>(whole);
      break;
    case Values::kNumber:
      if (is_word) return true;
      if (!absl::SimpleAtod(text, &number) || !std::isfinite(number)) return false;
      break;
  }
  return (values.above ? number > values.least : number >= values.least) && number <= values.most;
}

std::string DescribeValues(const Values& values) {
  if (values.kind == Values::kSwitch) return "True, False";
  if (values.kind == Values::kWords) return absl::StrJoin(absl::StrSplit(values.words, ' '), ", ");
  return absl::StrCat(values.kind == Values::kWhole ? "a whole number" : "a number",
                      values.least == kAny ? ""
                      : values.above       ? " above "
                                           : " from ",
                      values.least == kAny ? "" : absl::StrCat(values.least),
                      values.most == kNoEnd ? "" : absl::StrCat(" to ", values.most),
                      values.words.empty() ? "" : absl::StrCat(", ", values.words));
}

}  // namespace

std::optional<std::string> AllowedForTomopy(const std::string& name, const std::string& text) {
  static const std::map<std::string, Values> table = Table();
  const auto values = table.find(name);
  if (values == table.end() || Allows(values->second, text)) return std::nullopt;
  return DescribeValues(values->second);
}

}  // namespace octavo::cli

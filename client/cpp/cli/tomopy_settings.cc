#include "client/cpp/cli/tomopy_settings.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "client/cpp/cli/tomopy_values.h"

namespace octavo::cli {
namespace {

/// With all the digits that a column or a projection may need.
std::string Exact(double value) { return absl::StrFormat("%.10g", value); }

// tomopy-cli's defaults, which `tomopy init` writes.
const std::map<std::string, std::string> kDefaults = {{"logs-home", ""},
                                                      {"parameter-file", "extra_params.yaml"},
                                                      {"verbose", "False"},
                                                      {"config-update", "False"},
                                                      {"center-search-width", "10.0"},
                                                      {"rotation-axis", "-1.0"},
                                                      {"rotation-axis-auto", "read_auto"},
                                                      {"rotation-axis-flip", "-1.0"},
                                                      {"file-name", "."},
                                                      {"file-format", "dx"},
                                                      {"file-type", "standard"},
                                                      {"nsino", "0.5"},
                                                      {"nsino-per-chunk", "256"},
                                                      {"binning", "0"},
                                                      {"reverse", "False"},
                                                      {"blocked-views", "False"},
                                                      {"dark-zero", "False"},
                                                      {"start-row", "0"},
                                                      {"end-row", "-1"},
                                                      {"start-proj", "0"},
                                                      {"end-proj", "-1"},
                                                      {"scintillator-auto", "False"},
                                                      {"pixel-size-auto", "False"},
                                                      {"correct-camera-nonlinearity", "False"},
                                                      {"camera-signal", ""},
                                                      {"corrected-signal", ""},
                                                      {"dx-update", "False"},
                                                      {"blocked-views-start", "0"},
                                                      {"blocked-views-end", "1"},
                                                      {"zinger-removal-method", "none"},
                                                      {"zinger-level-projections", "800.0"},
                                                      {"zinger-level-white", "1000.0"},
                                                      {"zinger-size", "3"},
                                                      {"flat-correction-method", "standard"},
                                                      {"normalization-cutoff", "1.0"},
                                                      {"air", "10"},
                                                      {"fix-nan-and-inf", "False"},
                                                      {"fix-nan-and-inf-value", "6.0"},
                                                      {"minus-log", "True"},
                                                      {"sinogram-max-value", "inf"},
                                                      {"retrieve-phase-method", "none"},
                                                      {"energy", "20"},
                                                      {"propagation-distance", "60"},
                                                      {"pixel-size", "1.17"},
                                                      {"retrieve-phase-alpha", "0.001"},
                                                      {"retrieve-phase-alpha-try", "False"},
                                                      {"retrieve-phase-pad", "8"},
                                                      {"remove-stripe-method", "none"},
                                                      {"vo-all-snr", "3"},
                                                      {"vo-all-la-size", "61"},
                                                      {"vo-all-sm-size", "21"},
                                                      {"fw-sigma", "1"},
                                                      {"fw-filter", "sym16"},
                                                      {"fw-level", "7"},
                                                      {"fw-pad", "True"},
                                                      {"ti-alpha", "1.5"},
                                                      {"ti-nblock", "0"},
                                                      {"sf-size", "5"},
                                                      {"beam-hardening-method", "none"},
                                                      {"source-distance", "36.0"},
                                                      {"scintillator-material", "LuAG_Ce"},
                                                      {"scintillator-thickness", "100.0"},
                                                      {"center-row", "0.0"},
                                                      {"sample-material", "Fe"},
                                                      {"filter-1-auto", "False"},
                                                      {"filter-1-material", "none"},
                                                      {"filter-1-thickness", "0.0"},
                                                      {"filter-2-auto", "False"},
                                                      {"filter-2-material", "none"},
                                                      {"filter-2-thickness", "0.0"},
                                                      {"filter-3-auto", "False"},
                                                      {"filter-3-material", "none"},
                                                      {"filter-3-thickness", "0.0"},
                                                      {"reconstruction-type", "try"},
                                                      {"reconstruction-algorithm", "gridrec"},
                                                      {"reconstruction-mask", "False"},
                                                      {"reconstruction-mask-ratio", "1.0"},
                                                      {"save-format", "tiff"},
                                                      {"save-folder", "{file_name_parent}_rec"},
                                                      {"gridrec-filter", "parzen"},
                                                      {"gridrec-padding", "True"},
                                                      {"lprec-fbp-filter", "parzen"},
                                                      {"lprec-padding", "False"},
                                                      {"lprec-method", "fbp"},
                                                      {"lprec-num_iter", "64"},
                                                      {"lprec-reg", "0.01"},
                                                      {"lprec-num_gpu", "1"},
                                                      {"astrasirt-proj-type", "cuda"},
                                                      {"astrasirt-method", "SIRT_CUDA"},
                                                      {"astrasirt-min-constraint", "None"},
                                                      {"astrasirt-max-constraint", "None"},
                                                      {"astrasirt-num_iter", "200"},
                                                      {"astrasirt-bootstrap", "False"},
                                                      {"astrasart-proj-type", "cuda"},
                                                      {"astrasart-method", "SART_CUDA"},
                                                      {"astrasart-min-constraint", "None"},
                                                      {"astrasart-max-constraint", "None"},
                                                      {"astrasart-num_iter", "200"},
                                                      {"astrasart-bootstrap", "False"},
                                                      {"astracgls-proj-type", "cuda"},
                                                      {"astracgls-method", "CGLS_CUDA"},
                                                      {"astracgls-num_iter", "200"},
                                                      {"astracgls-bootstrap", "False"}};

/// Goes through the settings in the order of tomopy-cli's steps. Each method takes those of its
/// step.
class Translation {
 public:
  explicit Translation(const std::map<std::string, std::string>& given) : given_(given) {}

  TomopySettings Run() {
    Files();
    Axis();
    Ranges();
    Fields();
    Values();
    Hardening();
    Rings();
    Phase();
    Algorithm();
    Mask();
    Results();
    for (const auto& [name, value] : given_) Differ(name, kDefaults.at(name), "", {});
    for (const auto& [name, value] : given_) CheckValue(name);
    return std::move(out_);
  }

 private:
  using Names = std::vector<std::string>;

  bool Has(const std::string& name) const { return given_.contains(name); }
  std::string Text(const std::string& name) const {
    const auto found = given_.find(name);
    return found != given_.end() ? found->second : kDefaults.at(name);
  }
  std::string Setting(const std::string& name) const {
    return absl::StrCat(name, " = ", Text(name));
  }
  bool Is(const std::string& name, const char* value) const { return Text(name) == value; }
  bool IsDefault(const std::string& name) const {
    double a = 0, b = 0;
    return Text(name) == kDefaults.at(name) ||
           (absl::SimpleAtod(Text(name), &a) && absl::SimpleAtod(kDefaults.at(name), &b) && a == b);
  }

  /// A number; else it is refused, and nothing is returned.
  std::optional<double> Number(const std::string& name) {
    double number = 0;
    if (absl::SimpleAtod(Text(name), &number) && std::isfinite(number)) return number;
    Mistake(name, "a number");
    return std::nullopt;
  }
  /// Whether a switch is on; refuses what is neither True nor False.
  bool On(const std::string& name) {
    if (absl::EqualsIgnoreCase(Text(name), "true")) return true;
    if (!absl::EqualsIgnoreCase(Text(name), "false")) Mistake(name, "True, False");
    return false;
  }

  /// Whether the setting is given and in no group yet; from now on it is.
  bool Take(const std::string& name) { return taken_.insert(name).second && Has(name); }

  void Become(const std::string& name, const std::string& flag, Names values,
              const std::string& why = "") {
    taken_.insert(name);
    out_.flags.push_back({flag, std::move(values), Setting(name), why, false});
  }
  void Otherwise(const std::string& name, const std::string& what) {
    if (Take(name)) out_.otherwise.push_back(absl::StrCat(Setting(name), ": ", what));
  }
  void NoEffect(const Names& names) {
    for (const std::string& name : names) {
      if (Take(name)) out_.no_effect.push_back(Setting(name));
    }
  }
  void Refuse(const std::string& name, const std::string& allowed, Names instead, bool differs) {
    if (!taken_.insert(name).second) return;
    out_.refusals.push_back({Setting(name), Refusal(name, allowed), std::move(instead), differs});
  }
  std::string Refusal(const std::string& name, const std::string& allowed) const {
    return absl::StrCat(name, " is '", Text(name), "'; allowed ", allowed);
  }
  /// A value that tomopy-cli does not take either: CheckValue refuses it, by tomopy-cli's own list.
  void LeaveToCheck(const std::string& name) { taken_.insert(name); }
  void Mistake(const std::string& name, const std::string& allowed, Names instead = {}) {
    Refuse(name, allowed, std::move(instead), false);
  }
  /// A method or switch that nothing here does.
  void NotSupported(const std::string& name, const std::string& allowed, Names instead = {}) {
    Refuse(name, allowed, std::move(instead), true);
  }
  /// A value other than the default has no counterpart. The default: `what` is done in its place,
  /// or, if `what` is empty, the same.
  void Differ(const std::string& name, const std::string& allowed, const std::string& what,
              Names instead) {
    if (taken_.contains(name) || !Has(name)) return;
    if (!IsDefault(name)) return NotSupported(name, allowed, std::move(instead));
    if (what.empty()) return NoEffect({name});
    Otherwise(name, what);
  }
  /// A value of the wrong type or range is a mistake whatever becomes of its setting, also where
  /// the setting has no effect beside the others, or a flag is given in its place.
  void CheckValue(const std::string& name) {
    const std::optional<std::string> allowed = AllowedForTomopy(name, Text(name));
    if (!allowed.has_value()) return;
    const std::string setting = Setting(name);
    std::erase(out_.no_effect, setting);
    std::erase_if(out_.otherwise, [&](const std::string& text) {
      return absl::StartsWith(text, absl::StrCat(setting, ": "));
    });
    std::erase_if(out_.flags, [&](const auto& flag) { return flag.setting == setting; });
    const auto before = std::find_if(out_.refusals.begin(), out_.refusals.end(),
                                     [&](const auto& one) { return one.setting == setting; });
    if (before == out_.refusals.end()) {
      taken_.erase(name);
      return Mistake(name, *allowed);
    }
    before->text = Refusal(name, *allowed);
    before->differs = false;
    before->instead.clear();
  }
  /// The given ones of these, as part of a refusal: " (energy = 35, pixel-size = 0.69)".
  std::string With(const Names& names) {
    Names given;
    for (const std::string& name : names) {
      if (Take(name)) given.push_back(Setting(name));
    }
    return given.empty() ? "" : absl::StrCat(" (with ", absl::StrJoin(given, ", "), ")");
  }
  /// All names that begin with `prefix`.
  static Names NamesWith(const std::string& prefix) {
    Names names;
    for (const auto& [name, value] : kDefaults) {
      if (absl::StartsWith(name, prefix)) names.push_back(name);
    }
    return names;
  }

  void Files() {
    // The format is found in the file; retrieve-phase-alpha-try is read by nothing in tomopy-cli.
    NoEffect({"logs-home", "verbose", "config-update", "dx-update", "nsino-per-chunk",
              "file-format", "retrieve-phase-alpha-try"});
    const std::string name = Text("file-name");
    if (Has("file-name") && name != "." && name != "None") Become("file-name", "file", {name});
    NoEffect({"file-name"});
    if (const std::string type = Text("file-type"); type == "flip_and_stich") {
      NotSupported("file-type", "standard; --stitch-left or --stitch-right joins the two halves",
                   {"stitch-left", "stitch-right"});
      if (Has("rotation-axis-flip") && !IsDefault("rotation-axis-flip")) {
        NotSupported("rotation-axis-flip",
                     "-1; --overlap gives the columns that both halves see, else they are found",
                     {"overlap"});
      }
    } else if (type == "double_fov") {
      NotSupported("file-type",
                   "standard; a scan over 360 degrees with the axis at one side: --stitch-left, "
                   "--stitch-right",
                   {"stitch-left", "stitch-right"});
    } else if (type == "mosaic") {
      NotSupported("file-type", "standard; tiles of a mosaic are not joined here");
    } else if (type != "standard") {
      LeaveToCheck("file-type");
    }
    NoEffect({"file-type", "rotation-axis-flip"});
    std::error_code error;
    // tomopy-cli, too, goes on without such a file.
    if (Has("parameter-file") && std::filesystem::exists(Text("parameter-file"), error)) {
      NotSupported("parameter-file",
                   "a name of no file: parameters of single scans are not read; give those scans a "
                   "call of their own");
    }
    NoEffect({"parameter-file"});
    if (On("reverse"))
      NotSupported("reverse", "False; --angles 180:0:COUNT gives the angles", {"angles"});
    NoEffect({"reverse"});
    if (On("blocked-views")) {
      NotSupported("blocked-views",
                   absl::StrCat("False; --projections picks the projections that are used",
                                With({"blocked-views-start", "blocked-views-end"})),
                   {"projections"});
    }
    NoEffect({"blocked-views", "blocked-views-start", "blocked-views-end"});
    if (On("correct-camera-nonlinearity")) {
      NotSupported("correct-camera-nonlinearity",
                   absl::StrCat("False; the camera is taken as linear",
                                With({"camera-signal", "corrected-signal"})));
    }
    NoEffect({"correct-camera-nonlinearity", "camera-signal", "corrected-signal"});
  }

  bool IsOfAstra() const { return absl::StartsWith(Text("reconstruction-algorithm"), "astra"); }
  // tomopy-cli divides the axis by the bins. TomoPy's gridrec, its default, takes the quotient as
  // an index of binned columns, and so does lprec. ASTRA counts the edges of columns: the middle of
  // N is N / 2 there and (N - 1) / 2 here, binned or not.
  double AxisAsHere(double axis) const {
    if (IsOfAstra()) return axis - 0.5;
    const std::string power = Text("binning");
    const double bins = power == "1" ? 2 : power == "2" ? 4 : 1;
    return axis + 0.5 * (bins - 1);
  }
  std::string AxisNote() const {
    if (IsOfAstra()) return "ASTRA counts half a column more";
    return AxisAsHere(0) > 0 ? "the middle of the binned column that it is there" : "";
  }
  void Axis() {
    const std::string how = Text("rotation-axis-auto");
    const bool given = Has("rotation-axis-auto");
    const std::optional<double> axis = Number("rotation-axis");
    if (!axis.has_value()) return NoEffect({"rotation-axis-auto"});
    const std::string stored = "what tomopy-cli stored in the file is not read";
    if (given && how == "auto") {
      Become("rotation-axis-auto", "center", {"auto"},
             "found by opposite projections first; tomopy-cli searches with Vo's method");
      NoEffect({"rotation-axis"});
    } else if (given && how == "read_auto") {
      Otherwise("rotation-axis-auto",
                "an NXtomo file's own axis, else it is found, as without --center; " + stored);
      NoEffect({"rotation-axis"});
    } else if (given && how != "manual" && how != "read_manual") {
      LeaveToCheck("rotation-axis-auto");
      NoEffect({"rotation-axis"});
    } else if (*axis > 0) {
      const double here = AxisAsHere(*axis);
      const std::string column = Exact(here);
      double width = 0;
      if (how == "read_manual") {
        Otherwise("rotation-axis-auto", stored);
      } else {
        NoEffect({"rotation-axis-auto"});
      }
      const bool tries = Has("reconstruction-type") && Is("reconstruction-type", "try");
      if (tries) width = Number("center-search-width").value_or(0);
      if (width > 0) {
        taken_.insert({"rotation-axis", "center-search-width"});
        Become("reconstruction-type", "try-centers",
               {absl::StrCat(Exact(here - width), ":", Exact(here - 0.5 + width), ":0.5")},
               absl::StrCat("rotation-axis ", Exact(*axis), " +- ", Exact(width),
                            AxisNote().empty() ? "" : ": ", AxisNote()));
        out_.flags.push_back(
            {"center", {column}, Setting("rotation-axis"), "no axes are tried", true});
        Differ("nsino", "0.5, the middle row; --center-row or --rows gives another one", "",
               {"center-row", "rows"});
      } else {
        Become("rotation-axis", "center", {column}, AxisNote());
      }
    } else if (given) {
      NoEffect({"rotation-axis"});
      Become("rotation-axis-auto", "center", {"middle"},
             Has("rotation-axis") ? absl::StrCat(Setting("rotation-axis"), " is not above 0")
                                  : "rotation-axis is not given");
    }
    NoEffect({"rotation-axis", "center-search-width"});
    const bool searches = given && (how == "auto" || how == "read_auto");
    if (searches && !IsDefault("nsino") && !Is("reconstruction-type", "slice"))
      Otherwise("nsino", "the axis is searched in up to 16 rows; --center-row gives the first");
  }

  void Range(const char* begin_name, const char* end_name, const char* flag) {
    const std::optional<double> begin = Number(begin_name), end = Number(end_name);
    if (!begin.has_value() || !end.has_value()) return NoEffect({begin_name, end_name});
    if (*begin <= 0 && *end < 0) return NoEffect({begin_name, end_name});
    const bool by_end = Has(end_name) && *end >= 0;
    taken_.insert({begin_name, end_name});
    Become(by_end ? end_name : begin_name, flag,
           {absl::StrCat(Exact(std::max(0.0, *begin)), ":", *end < 0 ? "" : Exact(*end))},
           by_end && Has(begin_name) ? "with " + Setting(begin_name) : "");
  }

  void Ranges() {
    if (const std::optional<double> end = Number("end-proj"); end.has_value() && *end < -1) {
      NotSupported(
          "end-proj",
          absl::StrCat("-1, or a projection: --projections begin:end", With({"start-proj"})),
          {"projections"});
    }
    Range("start-row", "end-row", "rows");
    if (!taken_.contains("end-proj")) Range("start-proj", "end-proj", "projections");
    if (Has("reconstruction-type")) {
      if (Is("reconstruction-type", "slice")) {
        NotSupported("reconstruction-type",
                     absl::StrCat("full; one slice: --rows with its row, which nsino gives as a "
                                  "part of the rows",
                                  With({"nsino"})),
                     {"rows"});
      } else if (Is("reconstruction-type", "try")) {
        Otherwise("reconstruction-type",
                  "the whole scan is reconstructed, with the axis that is found; --try-centers "
                  "begin:end:step tries several");
      } else if (!Is("reconstruction-type", "full")) {
        LeaveToCheck("reconstruction-type");
      }
      NoEffect({"reconstruction-type"});
    }
    NoEffect({"nsino"});
    if (!Has("binning")) return;
    const std::string power = Text("binning");
    if (power == "1" || power == "2") {
      Become("binning", "bin", {power == "1" ? "2" : "4"});
    } else if (power == "3") {
      NotSupported("binning", "0, 1, 2, which are 1, 2 and 4 rows and columns", {"bin"});
    } else if (power != "0") {
      LeaveToCheck("binning");
    }
    NoEffect({"binning"});
  }

  void Fields() {
    const std::string method = Text("flat-correction-method");
    const bool standard = method == "standard";
    if (On("dark-zero") && standard) Become("dark-zero", "darks", {"-"});
    NoEffect({"dark-zero"});
    Zingers();
    if (standard) {
      if (Has("flat-correction-method")) {
        Become("flat-correction-method", "median", {"true"},
               "tomopy-cli takes the medians of flat and dark fields");
      }
      if (Has("normalization-cutoff"))
        Become("normalization-cutoff", "cutoff", {Text("normalization-cutoff")});
    } else if (method == "air" || method == "none") {
      Become("flat-correction-method", "transmissions", {"true"}, "no flat and dark fields");
      if (method == "air") Become("air", "air", {Text("air"), Text("air")});
    } else {
      LeaveToCheck("flat-correction-method");
    }
    NoEffect({"normalization-cutoff", "air"});
  }

  void Zingers() {
    const Names values = {"zinger-size", "zinger-level-projections", "zinger-level-white"};
    const std::string method = Text("zinger-removal-method");
    if (method == "standard") {
      Become("zinger-removal-method", "outliers",
             {Text("zinger-size"), Text("zinger-level-projections")},
             absl::StrCat("of flat fields, too",
                          Text("binning") != "0" ? ", and before binning, not after it" : "",
                          With({"zinger-size", "zinger-level-projections"})));
      if (Text("zinger-level-white") == Text("zinger-level-projections"))
        NoEffect({"zinger-level-white"});
      Differ("zinger-level-white",
             "1000, or zinger-level-projections: --outliers has one difference for both",
             "flat fields have the difference of zinger-level-projections", {"outliers"});
    } else if (method != "none") {
      LeaveToCheck("zinger-removal-method");
    }
    NoEffect({"zinger-removal-method"});
    NoEffect(values);
  }

  void Values() {
    const bool logarithm = On("minus-log");
    if (!logarithm)
      Become("minus-log", "no-log", {"true"},
             "tomopy-cli itself heeds it on its command line only");
    NoEffect({"minus-log"});
    if (On("fix-nan-and-inf")) {
      double cutoff = 0;
      // Elsewhere a line integral is never negative: no transmission is above 1.
      const bool negative =
          !(logarithm && Is("flat-correction-method", "standard") &&
            Is("remove-stripe-method", "none") &&
            absl::SimpleAtod(Text("normalization-cutoff"), &cutoff) && cutoff <= 1);
      taken_.insert("fix-nan-and-inf-value");
      Become("fix-nan-and-inf", "not-finite", {Text("fix-nan-and-inf-value")},
             "the number is fix-nan-and-inf-value");
      if (negative) {
        taken_.erase("fix-nan-and-inf");
        NotSupported("fix-nan-and-inf",
                     "False, or a normalization-cutoff of at most 1 without remove-stripe-method: "
                     "it makes negative values 0, too; --not-finite alone leaves them",
                     {"not-finite"});
      }
    }
    NoEffect({"fix-nan-and-inf", "fix-nan-and-inf-value"});
    Differ("sinogram-max-value", "inf: there is no largest value of a sinogram", "", {});
  }

  void Hardening() {
    Names values = {
        "source-distance", "scintillator-material", "scintillator-thickness", "scintillator-auto",
        "center-row",      "sample-material"};
    for (const std::string& name : NamesWith("filter-")) values.push_back(name);
    if (!Is("beam-hardening-method", "none")) {
      const std::string allowed = absl::StrCat(
          "none: it makes micrometres of one material of transmissions, by spectra of a bending "
          "magnet that depend on the row; Octavo's own correction is a polynomial of line "
          "integrals, --beam-hardening",
          With(values));
      if (Is("beam-hardening-method", "standard")) {
        NotSupported("beam-hardening-method", allowed, {"beam-hardening"});
      } else {
        LeaveToCheck("beam-hardening-method");
      }
    }
    NoEffect({"beam-hardening-method"});
    NoEffect(values);
  }

  void Rings() {
    const std::string method = Text("remove-stripe-method");
    const char* order = "after the logarithm, not before it";
    if (method == "fw") {
      const std::string own = "rings = wavelet has the filter db5 with sigma 2, and chooses levels";
      Become("remove-stripe-method", "rings", {"wavelet"}, order);
      if (Is("fw-filter", "db5")) NoEffect({"fw-filter"});
      if (Number("fw-sigma") == 2) NoEffect({"fw-sigma"});
      Differ("fw-filter", "sym16, db5: " + own, own, {"rings"});
      Differ("fw-sigma", "1, 2: " + own, own, {"rings"});
      Differ("fw-level", "7: " + own, own, {"rings"});
      NoEffect({"fw-pad"});  // tomopy-cli always pads
    } else if (method == "vo-all") {
      const std::string own = "rings = all has snr 3 and windows of its own";
      Become("remove-stripe-method", "rings", {"all"}, order);
      Differ("vo-all-snr", "3: " + own, "", {"rings"});
      Differ("vo-all-la-size", "61: " + own, "", {"rings"});
      Differ("vo-all-sm-size", "21: " + own,
             "the window depends on the number of columns, and is 21 above 2000", {"rings"});
    } else if (method == "ti" || method == "sf") {
      NotSupported("remove-stripe-method",
                   absl::StrCat("none, fw, vo-all; Octavo has others: --rings",
                                With(NamesWith(method + "-"))),
                   {"rings"});
    } else if (method != "none") {
      LeaveToCheck("remove-stripe-method");
    }
    NoEffect({"remove-stripe-method", "sf-size"});
    for (const char* prefix : {"vo-all-", "fw-", "ti-"}) NoEffect(NamesWith(prefix));
  }

  /// A value that Octavo's phase retrieval does not take; else nothing is refused.
  bool FitsPhase(const std::string& name, double value, double least, double most,
                 const std::string& unit) {
    if (value >= least && value <= most) return true;
    NotSupported(name,
                 absl::StrCat(Exact(least), " to ", Exact(most), unit,
                              " with retrieve-phase-method paganin; --phase gives the numbers"),
                 {"phase"});
    return false;
  }

  // tomopy-cli calls retrieve_phase of TomoPy (1.15.2: prep/phase.py) with the pixels in cm, of
  // what it has binned before. Its filter, which is 1 at w = 0 after the division by its largest
  // value, is alpha / (wavelength dist w^2 / (4 pi) + alpha), w in cycles per length. That of
  // METHOD_PAGANIN is 1 / (1 + delta_beta wavelength dist (2 pi w)^2 / (4 pi)).
  void Paganin() {
    const std::string name = "retrieve-phase-method";
    if (On("pixel-size-auto")) {
      NotSupported("pixel-size-auto",
                   "False with retrieve-phase-method paganin: the size in the file is not read for "
                   "it; --phase gives the numbers",
                   {"phase"});
      return NoEffect({name});
    }
    const std::optional<double> pixel = Number("pixel-size"),
                                distance = Number("propagation-distance"),
                                energy = Number("energy"), alpha = Number("retrieve-phase-alpha");
    if (!pixel.has_value() || !distance.has_value() || !energy.has_value() || !alpha.has_value())
      return NoEffect({name});
    if (*distance == 0) return Otherwise(name, "over a distance of 0 it changes nothing");
    const std::string power = Text("binning");
    const double bins = power == "1" ? 2 : power == "2" ? 4 : 1;
    const double delta_beta = 1 / (4 * M_PI * M_PI * *alpha);
    const bool fits = FitsPhase("pixel-size", *pixel, 0.001 * bins, 1000 * bins, " um") &
                      FitsPhase("propagation-distance", *distance, 0.001, 1e6, " mm") &
                      FitsPhase("energy", *energy, 1, 1000, " keV") &
                      FitsPhase("retrieve-phase-alpha", *alpha, 2.54e-8, 2.53,
                                ", where delta / beta is 1e6 to 0.01,");
    if (!fits) return NoEffect({name});
    Become(name, "phase",
           {Exact(*pixel / bins), Exact(*distance), Exact(*energy), Exact(delta_beta)},
           absl::StrCat(
               "delta / beta is 1 / (4 pi^2 retrieve-phase-alpha), by the filter of TomoPy "
               "1.15.2, whose frequencies lie half a step beside",
               bins > 1 ? "; pixel-size is that of binned pixels there" : "",
               With({"pixel-size", "propagation-distance", "energy", "retrieve-phase-alpha"})));
  }

  void Phase() {
    NoEffect({"retrieve-phase-pad"});  // rows beside a chunk, of which there is one here
    const Names values = {"energy", "propagation-distance", "pixel-size", "pixel-size-auto",
                          "retrieve-phase-alpha"};
    if (Is("beam-hardening-method", "standard")) {
      // tomopy-cli leaves it out then.
    } else if (Is("retrieve-phase-method", "paganin")) {
      Paganin();
    } else if (!Is("retrieve-phase-method", "none")) {
      LeaveToCheck("retrieve-phase-method");
    }
    NoEffect({"retrieve-phase-method"});
    NoEffect(values);
  }

  void Filter(const std::string& name) {
    static const std::map<std::string, std::string> kFilters = {
        {"shepp", "shepp-logan"},      {"cosine", "cosine"}, {"hann", "hann"},
        {"hamming", "hamming"},        {"ramlak", "ramp"},   {"parzen", "parzen"},
        {"butterworth", "butterworth"}};
    const auto filter = kFilters.find(Text(name));
    const std::string allowed = "shepp, cosine, hann, hamming, ramlak, parzen, butterworth";
    if (filter != kFilters.end()) {
      Become(name, "filter", {filter->second});
    } else if (Is(name, "none")) {
      NotSupported(name, allowed, {"filter"});
    } else {
      LeaveToCheck(name);
    }
  }
  void Padding(const std::string& name) {
    if (On(name)) {
      Become(name, "extend-edges", {"true"}, "rows go on with their end values, as there");
    } else if (name == "gridrec-padding") {
      Otherwise(name, "rows end at the detector; tomopy-cli itself pads even then");
    }
  }
  void Bound(const std::string& name, const char* flag) {
    if (!Is(name, "None") && Number(name).has_value()) Become(name, flag, {Text(name)});
    NoEffect({name});
  }
  void Iterations(const std::string& prefix, const std::string& method) {
    Become(prefix + "-num_iter", "iterations", {Text(prefix + "-num_iter")});
    if (On(prefix + "-bootstrap"))
      NotSupported(prefix + "-bootstrap", "False; the iterations begin with 0");
    if (!Is(prefix + "-method", method.c_str()) &&
        !Is(prefix + "-method", (method + "_CUDA").c_str())) {
      NotSupported(prefix + "-method",
                   absl::StrCat(method, "_CUDA, ", method, "; Octavo's own: --algorithm"),
                   {"algorithm"});
    }
    NoEffect({prefix + "-proj-type", prefix + "-method", prefix + "-bootstrap"});
  }

  void Algorithm() {
    const std::string name = "reconstruction-algorithm", algorithm = Text(name);
    if (!Has(name)) {
      // A few keys by hand: those of the algorithm that tomopy-cli takes.
      if (Has("gridrec-filter")) Filter("gridrec-filter");
      if (Has("gridrec-padding")) Padding("gridrec-padding");
    } else if (algorithm == "gridrec") {
      Become(name, "algorithm", {"auto"});
      Filter("gridrec-filter");
      Padding("gridrec-padding");
    } else if (algorithm == "lprec" && Is("lprec-method", "fbp")) {
      Become(name, "algorithm", {"fourier"}, "log-polar FBP and gridding make the same sum");
      Filter("lprec-fbp-filter");
      Padding("lprec-padding");
    } else if (algorithm == "lprec") {
      NotSupported("lprec-method", absl::StrCat("fbp", With({name, "lprec-num_iter", "lprec-reg"})),
                   {"algorithm"});
    } else if (algorithm == "astrasirt") {
      Become(name, "algorithm", {"sirt"});
      Iterations("astrasirt", "SIRT");
      Bound("astrasirt-min-constraint", "min");
      Bound("astrasirt-max-constraint", "max");
    } else if (algorithm == "astracgls") {
      Become(name, "algorithm", {"cgls"});
      Iterations("astracgls", "CGLS");
    } else if (algorithm == "sirt" || algorithm == "mlem") {
      Become(name, "algorithm", {algorithm},
             "with --iterations, else the usual number; tomopy-cli itself takes gridrec for it");
    } else {
      NotSupported(
          name,
          absl::StrCat(
              "gridrec, lprec, astrasirt, astracgls, sirt, mlem; Octavo's own: --algorithm",
              algorithm == "astrasart" ? With(NamesWith("astrasart-")) : ""),
          {"algorithm"});
    }
    for (const char* prefix : {"gridrec-", "lprec-", "astra"}) NoEffect(NamesWith(prefix));
  }

  void Mask() {
    if (On("reconstruction-mask")) {
      taken_.insert("reconstruction-mask-ratio");
      Become("reconstruction-mask", "mask", {Text("reconstruction-mask-ratio")},
             "the number is reconstruction-mask-ratio");
    } else if (Has("reconstruction-mask") && !taken_.contains("reconstruction-mask")) {
      Become("reconstruction-mask", "mask", {"0"}, "no circle");
    }
    NoEffect({"reconstruction-mask-ratio"});
  }

  void Results() {
    if (Has("save-format")) {
      if (Is("save-format", "tiff")) {
        Become("save-format", "format", {"tiff"});
        Become("save-format", "tiff-stack", {"true"});
      } else if (Is("save-format", "h5")) {
        Become("save-format", "format", {"hdf5"});
      } else {
        LeaveToCheck("save-format");
      }
    }
    if (IsDefault("save-folder")) {
      Otherwise("save-folder",
                "results go below a storage root of the server: --output, --output-dir");
    } else {
      Mistake("save-folder",
              absl::StrCat(kDefaults.at("save-folder"), "; --output-dir names the folder"),
              {"output-dir", "output"});
    }
  }

  const std::map<std::string, std::string>& given_;
  std::set<std::string> taken_;  // those in a group, and those that another one settles
  TomopySettings out_;
};

}  // namespace

bool IsTomopyName(const std::string& name) { return kDefaults.contains(name); }

std::vector<std::string> TomopyNames() {
  std::vector<std::string> names;
  for (const auto& [name, value] : kDefaults) names.push_back(name);
  return names;
}

TomopySettings FromTomopy(const std::map<std::string, std::string>& given) {
  return Translation(given).Run();
}

}  // namespace octavo::cli

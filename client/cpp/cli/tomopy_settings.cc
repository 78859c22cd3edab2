#include "client/cpp/cli/tomopy_settings.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

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
/// step; what no method took changes no result here.
class Translation {
 public:
  explicit Translation(const std::map<std::string, std::string>& given) : given_(given) {}

  TomopySettings Run() {
    File();
    Axis();
    Ranges();
    Fields();
    Values();
    Rings();
    Phase();
    Algorithm();
    Results();
    for (const auto& [name, value] : given_) {
      if (!taken_.contains(name)) out_.ignored.push_back(name);
    }
    return std::move(out_);
  }

 private:
  bool Has(const std::string& name) const { return given_.contains(name); }
  std::string Text(const std::string& name) const {
    const auto found = given_.find(name);
    return found != given_.end() ? found->second : kDefaults.at(name);
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
    if (absl::SimpleAtod(Text(name), &number)) return number;
    Refuse(name, "a number");
    return std::nullopt;
  }
  /// Whether a switch is on; refuses what is neither True nor False.
  bool On(const std::string& name) {
    if (absl::EqualsIgnoreCase(Text(name), "true")) return true;
    if (!absl::EqualsIgnoreCase(Text(name), "false")) Refuse(name, "True, False");
    return false;
  }

  void Become(const std::string& name, const std::string& flag, std::vector<std::string> values,
              const std::string& why = "") {
    taken_.insert(name);
    out_.notes.push_back(absl::StrCat(
        name, " = ", Text(name), " is ", flag, " = ",
        values.size() == 1 ? values[0] : absl::StrCat("[", absl::StrJoin(values, ", "), "]"),
        why.empty() ? "" : ": ", why));
    out_.flags.push_back({flag, std::move(values), false});
  }
  void Note(const std::string& name, const std::string& what) {
    taken_.insert(name);
    out_.notes.push_back(absl::StrCat(name, " = ", Text(name), ": ", what));
  }
  void Refuse(const std::string& name, const std::string& allowed,
              std::vector<std::string> instead = {}) {
    taken_.insert(name);
    out_.refusals.push_back(
        {absl::StrCat(name, " is '", Text(name), "'; allowed ", allowed), std::move(instead)});
  }
  /// Refuses a setting that is given with another value than its default.
  void RefuseOther(const std::string& name, const std::string& why) {
    if (Has(name) && !IsDefault(name))
      Refuse(name, absl::StrCat(kDefaults.at(name), why.empty() ? "" : ": ", why));
  }

  void File() {
    const std::string name = Text("file-name");
    if (Has("file-name") && name != "." && name != "None") Become("file-name", "file", {name});
    if (!Is("file-type", "standard")) {
      Refuse("file-type",
             "standard; a scan over 360 degrees with the axis at one side: --stitch-left, "
             "--stitch-right",
             {"stitch-left", "stitch-right"});
    }
    RefuseOther("parameter-file",
                "parameters of single scans are not read; give those scans a call of their own");
    if (On("reverse"))
      Refuse("reverse", "False; --angles 180:0:COUNT gives the angles", {"angles"});
    if (On("blocked-views")) {
      Refuse("blocked-views", "False; --projections picks the projections that are used",
             {"projections"});
    }
    if (On("correct-camera-nonlinearity"))
      Refuse("correct-camera-nonlinearity", "False; the camera is taken as linear");
  }

  // TomoPy counts half a column more: the middle of N columns is N / 2 there and (N - 1) / 2 here.
  void Axis() {
    const std::string how = Text("rotation-axis-auto");
    const bool given = Has("rotation-axis-auto");
    const std::optional<double> axis = Number("rotation-axis");
    if (!axis.has_value()) return;
    if (given && how == "auto") {
      Become("rotation-axis-auto", "center", {"auto"});
    } else if (given && how == "read_auto") {
      Note("rotation-axis-auto",
           "an NXtomo file's own axis, else it is found, as without --center; what tomopy-cli "
           "stored in the file is not read");
    } else if (given && how != "manual" && how != "read_manual") {
      Refuse("rotation-axis-auto", "read_auto, read_manual, manual, auto", {"center"});
    } else if (*axis > 0) {
      const std::string column = Exact(*axis - 0.5);
      double width = 0;
      if (Has("reconstruction-type") && Is("reconstruction-type", "try") &&
          absl::SimpleAtod(Text("center-search-width"), &width) && width > 0) {
        taken_.insert({"rotation-axis", "rotation-axis-auto", "center-search-width"});
        Become("reconstruction-type", "try-centers",
               {absl::StrCat(Exact(*axis - 0.5 - width), ":", Exact(*axis - 1 + width), ":0.5")},
               absl::StrCat("rotation-axis ", *axis, " +- ", width,
                            ", half a column less; where they are left out, center = ", column));
        out_.flags.push_back({"center", {column}, true});
      } else {
        taken_.insert("rotation-axis-auto");
        Become("rotation-axis", "center", {column}, "TomoPy counts half a column more");
      }
    } else if (given) {
      taken_.insert("rotation-axis");
      Become("rotation-axis-auto", "center", {"middle"}, "rotation-axis is not given");
    }
  }

  void Range(const char* begin_name, const char* end_name, const char* flag) {
    const std::optional<double> begin = Number(begin_name), end = Number(end_name);
    if (!begin.has_value() || !end.has_value() || (*begin <= 0 && *end < 0)) return;
    taken_.insert({begin_name, end_name});
    Become(Has(end_name) && *end >= 0 ? end_name : begin_name, flag,
           {absl::StrCat(Exact(std::max(0.0, *begin)), ":", *end < 0 ? "" : Exact(*end))});
  }

  void Ranges() {
    Range("start-row", "end-row", "rows");
    Range("start-proj", "end-proj", "projections");
    if (Has("reconstruction-type") && !taken_.contains("reconstruction-type")) {
      if (Is("reconstruction-type", "slice")) {
        Refuse("reconstruction-type",
               "full; one slice: --rows with its row, which nsino gives as a part of the rows",
               {"rows"});
      } else if (Is("reconstruction-type", "try")) {
        Note("reconstruction-type",
             "the whole scan is reconstructed, with the axis that is found; --try-centers "
             "begin:end:step tries several");
      } else if (!Is("reconstruction-type", "full")) {
        Refuse("reconstruction-type", "try, full", {"rows"});
      }
    }
    if (!Has("binning")) return;
    const std::string power = Text("binning");
    if (power == "1" || power == "2") {
      Become("binning", "bin", {power == "1" ? "2" : "4"});
    } else if (power != "0") {
      Refuse("binning", "0, 1, 2, which are 1, 2 and 4 rows and columns", {"bin"});
    }
  }

  void Fields() {
    if (On("dark-zero") && Is("flat-correction-method", "standard"))
      Become("dark-zero", "darks", {"-"});
    if (Has("zinger-removal-method")) {
      const std::string method = Text("zinger-removal-method");
      if (method == "standard") {
        taken_.insert({"zinger-size", "zinger-level-projections", "zinger-level-white"});
        Become("zinger-removal-method", "outliers",
               {Text("zinger-size"), Text("zinger-level-projections")},
               "zinger-size and zinger-level-projections, for flat fields, too");
      } else if (method != "none") {
        Refuse("zinger-removal-method", "none, standard", {"outliers"});
      }
    }
    if (!Has("flat-correction-method")) return;
    const std::string method = Text("flat-correction-method");
    if (method == "standard") {
      Become("flat-correction-method", "median", {"true"},
             "tomopy-cli takes the medians of flat and dark fields");
      if (Has("normalization-cutoff"))
        Become("normalization-cutoff", "cutoff", {Text("normalization-cutoff")});
    } else if (method == "air" || method == "none") {
      Become("flat-correction-method", "transmissions", {"true"}, "no flat and dark fields");
      if (method == "air") Become("air", "air", {Text("air"), Text("air")});
    } else {
      Refuse("flat-correction-method", "standard, air, none");
    }
  }

  void Values() {
    if (On("fix-nan-and-inf")) {
      taken_.insert("fix-nan-and-inf-value");
      Become("fix-nan-and-inf", "not-finite", {Text("fix-nan-and-inf-value")});
    }
    if (!On("minus-log")) Become("minus-log", "no-log", {"true"});
    RefuseOther("sinogram-max-value", "there is no largest value of a sinogram");
    if (!Is("beam-hardening-method", "none")) {
      Refuse("beam-hardening-method",
             "none, with Octavo's own --beam-hardening, a polynomial of line integrals");
    }
  }

  void Rings() {
    if (!Has("remove-stripe-method")) return;
    const std::string method = Text("remove-stripe-method");
    if (method == "fw") {
      for (const char* name : {"fw-sigma", "fw-filter", "fw-level", "fw-pad"}) {
        taken_.insert(name);
        RefuseOther(name, "rings = wavelet has the filter db5 with sigma 2");
      }
      Become("remove-stripe-method", "rings", {"wavelet"},
             "with Octavo's filter (db5, sigma 2, levels chosen) in place of TomoPy's");
    } else if (method == "vo-all") {
      for (const char* name : {"vo-all-snr", "vo-all-la-size", "vo-all-sm-size"}) {
        taken_.insert(name);
        RefuseOther(name, "rings = all has its own windows");
      }
      Become("remove-stripe-method", "rings", {"all"});
    } else if (method != "none") {
      Refuse("remove-stripe-method", "none, fw, vo-all; Octavo has others: --rings", {"rings"});
    }
  }

  void Phase() {
    if (On("retrieve-phase-alpha-try"))
      Refuse("retrieve-phase-alpha-try", "False; --phase takes one ratio", {"phase"});
    if (Is("retrieve-phase-method", "none")) return;
    taken_.insert({"energy", "propagation-distance", "pixel-size", "retrieve-phase-alpha"});
    Refuse("retrieve-phase-method",
           absl::StrCat("none; what retrieve-phase-alpha means depends on the version of TomoPy: "
                        "--phase ",
                        Text("pixel-size"), ",", Text("propagation-distance"), ",", Text("energy"),
                        ",DELTA_BETA"),
           {"phase"});
  }

  void Filter(const std::string& name) {
    static const std::map<std::string, std::string> kFilters = {
        {"shepp", "shepp-logan"},      {"cosine", "cosine"}, {"hann", "hann"},
        {"hamming", "hamming"},        {"ramlak", "ramp"},   {"parzen", "parzen"},
        {"butterworth", "butterworth"}};
    const auto filter = kFilters.find(Text(name));
    if (filter == kFilters.end()) {
      Refuse(name, "shepp, cosine, hann, hamming, ramlak, parzen, butterworth", {"filter"});
    } else {
      Become(name, "filter", {filter->second});
    }
  }
  void Padding(const std::string& name) {
    if (On(name))
      Become(name, "extend-edges", {"true"}, "rows go on with their end values, as there");
  }
  void Bound(const std::string& name, const char* flag) {
    if (Is(name, "None")) return;
    if (Number(name).has_value()) Become(name, flag, {Text(name)});
  }
  void Iterations(const std::string& prefix) {
    Become(prefix + "-num_iter", "iterations", {Text(prefix + "-num_iter")});
    if (On(prefix + "-bootstrap"))
      Refuse(prefix + "-bootstrap", "False; the iterations begin with 0");
  }

  void Algorithm() {
    const std::string name = "reconstruction-algorithm", algorithm = Text(name);
    if (!Has(name)) {
      // A few keys by hand: those of the algorithm that tomopy-cli takes.
      if (Has("gridrec-filter")) Filter("gridrec-filter");
      if (Has("gridrec-padding")) Padding("gridrec-padding");
    } else if (algorithm == "gridrec") {
      Become(name, "algorithm", {"fbp"});
      Filter("gridrec-filter");
      Padding("gridrec-padding");
    } else if (algorithm == "lprec" && Is("lprec-method", "fbp")) {
      taken_.insert({"lprec-method", "lprec-num_iter", "lprec-reg"});
      Become(name, "algorithm", {"fourier"}, "log-polar FBP and gridding make the same sum");
      Filter("lprec-fbp-filter");
      Padding("lprec-padding");
    } else if (algorithm == "lprec") {
      Refuse("lprec-method", "fbp", {"algorithm"});
      taken_.insert(name);
    } else if (algorithm == "astrasirt") {
      Become(name, "algorithm", {"sirt"});
      Iterations("astrasirt");
      Bound("astrasirt-min-constraint", "min");
      Bound("astrasirt-max-constraint", "max");
    } else if (algorithm == "astracgls") {
      Become(name, "algorithm", {"cgls"});
      Iterations("astracgls");
    } else if (algorithm == "sirt" || algorithm == "mlem") {
      Become(name, "algorithm", {algorithm},
             "with --iterations, else the usual number; tomopy-cli itself takes gridrec for it");
    } else {
      Refuse(name, "gridrec, lprec, astrasirt, astracgls, sirt, mlem; Octavo's own: --algorithm",
             {"algorithm"});
    }
    if (!Has("reconstruction-mask")) return;
    if (On("reconstruction-mask")) {
      taken_.insert("reconstruction-mask-ratio");
      Become("reconstruction-mask", "mask", {Text("reconstruction-mask-ratio")});
    } else if (!taken_.contains("reconstruction-mask")) {
      Become("reconstruction-mask", "mask", {"0"}, "no circle");
    }
  }

  void Results() {
    if (Has("save-format")) {
      if (Is("save-format", "tiff")) {
        Become("save-format", "format", {"tiff"});
        out_.flags.push_back({"tiff-stack", {"true"}, false});
        out_.notes.back() += ", tiff-stack = true";
      } else if (Is("save-format", "h5")) {
        Become("save-format", "format", {"hdf5"});
      } else {
        Refuse("save-format", "tiff, h5", {"format"});
      }
    }
    if (!Has("save-folder")) return;
    if (IsDefault("save-folder")) {
      Note("save-folder", "results go below a storage root of the server: --output, --output-dir");
    } else {
      Refuse("save-folder",
             absl::StrCat(kDefaults.at("save-folder"), "; --output-dir names the folder"),
             {"output-dir", "output"});
    }
  }

  const std::map<std::string, std::string>& given_;
  std::set<std::string> taken_;
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

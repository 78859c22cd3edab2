#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace octavo::cli {

/// Whether a name may stand for many scans: it has characters of a pattern (* ? [), or does not end
/// as the file of a scan does, so that it may be a folder of scans.
bool MayStandForMany(const std::string& name);
/// Whether it has characters of a pattern.
bool HasPattern(const std::string& name);

/// What the names of scans on a command line stand for.
struct ScanNames {
  std::vector<std::string> files;  // as named; those of a pattern or folder in natural order
  std::string many;                // the first pattern or folder of scans, in words; empty: none
  std::vector<std::string> notes;  // what was left out, and why
};

/// Finds the scans that patterns and folders stand for, on this computer, because the server has no
/// call that lists files. Names that are not absolute count from the server's replay roots, as they
/// do there.
class ScanFinder {
 public:
  struct Options {
    std::vector<std::string> roots;  // the server's replay roots, absolute
    std::string address;             // of the server, for errors
    std::set<std::string> fields;    // names of files of fields and angles, which are no scans
    bool sinograms = false;          // sinograms that Octavo has prepared count as scans
    bool transmissions = false;      // and so do transmissions
  };
  explicit ScanFinder(Options options);

  /// Throws CLI::ValidationError for a pattern or a folder that stands for no scan.
  ScanNames Find(const std::vector<std::string>& names) const;

 private:
  /// What lies below a folder or matches a pattern: the names by which the server finds it, and
  /// where it lies here.
  using Found = std::map<std::string, std::string>;

  Found Match(const std::string& pattern) const;
  void AddPattern(const std::string& pattern, ScanNames* to) const;
  void AddFolder(const std::string& name, const std::string& here, ScanNames* to) const;
  /// Where the name lies on this computer; empty: it is not seen here.
  std::string Here(const std::string& name) const;
  /// Why something that could be a scan is none: "a result of Octavo". Empty: it is one. `asked`:
  /// the user names what ends in _rec.
  std::string WhyNot(const std::string& name, const std::string& here, bool asked) const;
  /// "the server's replay roots /data, /more".
  std::string RootsInWords() const;
  /// What keeps this computer from seeing what the server has; empty: nothing.
  std::string Unseen() const;

  const Options options_;
  std::set<std::string> fields_;            // where they lie here
  std::vector<std::string> seen_, unseen_;  // roots that are folders here, and those that are not
};

}  // namespace octavo::cli

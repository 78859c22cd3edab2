#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

namespace octavo::buffer {

/// The reasons for the ends of buffers that are gone, so that an error can tell them. Each is
/// remembered for ten minutes, and only the last 10,000 are. Not thread-safe.
class Tombstones {
 public:
  static constexpr int64_t kKeptNs = int64_t{600} * 1'000'000'000;
  static constexpr size_t kMost = 10'000;

  void Add(const std::string& name, const std::string& text, int64_t now_ns);
  /// The reason for the end of the buffer; null if none is remembered.
  const std::string* Find(const std::string& name) const;
  /// A private buffer has gone: its exports and operations tell its name for longer than ten
  /// minutes. The keys of the last kMostPrivate are remembered.
  void AddPrivate(const std::string& name, const std::string& key);
  /// The key of a private buffer that is gone; null if none is remembered.
  const std::string* KeyOf(const std::string& name) const;
  static constexpr size_t kMostPrivate = 65'536;
  /// Forgets the oldest.
  void Purge(int64_t now_ns);

 private:
  std::map<std::string, std::string> text_of_;            // by name
  std::deque<std::pair<int64_t, std::string>> in_order_;  // time and name of each; oldest first
  std::map<std::string, std::string> key_of_;             // by name, of private ones
  std::deque<std::string> private_in_order_;              // oldest first
};

}  // namespace octavo::buffer

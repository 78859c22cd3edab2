#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hdf5.h"

namespace octavo::storage {

/// Looks at chunks of a dataset before the library decodes them. The library believes what a chunk
/// stores: where it is shorter than its filters or its extent need, the library reads foreign
/// memory, or beyond all memory. All calls with the library's lock held.
///
/// Filters that the library gets from plug-ins are believed: only their makers know what they need.
class Hdf5ChunkCheck {
 public:
  /// `remembers`: the file does not change, so a chunk that passes filters is decoded once only.
  explicit Hdf5ChunkCheck(hid_t dataset, bool remembers = false);

  /// What is wrong with the chunks that a selection touches (`space`, or H5S_ALL); "" = nothing.
  std::string Wrong(hid_t space);

 private:
  struct Filter {
    H5Z_filter_t id = 0;
    unsigned values[20] = {};  // as many as any of the library's filters has
    size_t count = 0;
  };
  std::string WrongAt(const hsize_t* at);
  /// Finds the lengths of chunks without a filter, which the library tells wrongly: as they should
  /// be.
  void FindLengths();
  /// Of one that is not in wrong_lengths_ yet.
  std::string WrongLength(const hsize_t* at, size_t index);
  /// The most bytes that a chunk takes: what noise takes in any filter, and their heads.
  hsize_t MostStored() const;
  /// Follows the length of raw_ back through the filters; bit i of `skipped`: not this one.
  std::string Decode(uint32_t skipped);
  std::string NBit(const Filter& filter, hsize_t* length) const;
  std::string ScaleOffset(const Filter& filter, hsize_t* length) const;

  const hid_t dataset_;
  int rank_ = 0;  // 0: there are no chunks
  hsize_t shape_[H5S_MAX_RANK] = {}, extent_[H5S_MAX_RANK] = {}, chunks_[H5S_MAX_RANK] = {};
  bool plain_edges_ = false;  // chunks that reach over the end of the data pass no filter
  hsize_t bytes_ = 0;         // of a chunk
  std::vector<Filter> filters_;
  std::vector<bool> sound_;  // of each chunk, where it remembers
  // Without a filter: those that have other lengths, by their index; whether they are all known.
  std::map<size_t, int64_t> wrong_lengths_;
  enum class Lengths : uint8_t { kUnknown, kKnown, kAsked } lengths_ = Lengths::kUnknown;
  std::string no_lengths_;  // why they cannot be known
  std::vector<char> raw_;
};

/// H5Dread behind the check. False with the library's reason (Hdf5Reason), also for a wrong chunk.
bool CheckedHdf5Read(Hdf5ChunkCheck& check, hid_t dataset, hid_t type, hid_t memory, hid_t space,
                     void* out);

}  // namespace octavo::storage

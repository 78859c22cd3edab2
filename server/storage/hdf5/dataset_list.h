#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/storage/io/hdf5_library.h"

namespace octavo::storage {

/// Datasets of a file, for errors and for choices. Links to other places are not followed.
struct Hdf5DatasetList {
  struct Entry {
    std::string path;
    std::vector<int64_t> shape;  // empty = a single value
  };
  std::vector<Entry> entries;
  bool more = false;  // than are listed, or than are looked at

  /// Those of the most axes first, and no more than `most`.
  void KeepLargest(size_t most);
  /// "/exchange/data [180, 4, 64], /exchange/theta [180], ..."; "none" if there is none.
  std::string Text() const;
};

/// The first `most` datasets in a file and its groups, those near the top first, in alphabetical
/// order in each group. With the library's lock held.
Hdf5DatasetList ListHdf5Datasets(hid_t file, size_t most);

}  // namespace octavo::storage

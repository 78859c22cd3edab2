#include "server/storage/hdf5/dataset_list.h"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "server/storage/hdf5/hdf5_links.h"

namespace octavo::storage {
namespace {

using Id = Hdf5Id;
constexpr size_t kMostPlaces = 10'000;

std::vector<int64_t> ShapeOf(hid_t file, const std::string& path, hid_t access) {
  const Id data(H5Dopen2(file, path.c_str(), access), H5Dclose);
  const Id space(data ? H5Dget_space(data.get()) : -1, H5Sclose);
  const int rank = space ? H5Sget_simple_extent_ndims(space.get()) : 0;
  hsize_t extents[H5S_MAX_RANK] = {};
  if (rank > 0) H5Sget_simple_extent_dims(space.get(), extents, nullptr);
  return {extents, extents + std::max(rank, 0)};
}

}  // namespace

void Hdf5DatasetList::KeepLargest(size_t most) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.shape.size() > b.shape.size(); });
  if (entries.size() <= most) return;
  entries.resize(most);
  more = true;
}

std::string Hdf5DatasetList::Text() const {
  if (entries.empty()) return "none";
  return absl::StrCat(absl::StrJoin(entries, ", ",
                                    [](std::string* out, const Entry& entry) {
                                      absl::StrAppend(out, entry.path);
                                      if (!entry.shape.empty())
                                        absl::StrAppend(out, " [", absl::StrJoin(entry.shape, ", "),
                                                        "]");
                                    }),
                      more ? ", ..." : "");
}

Hdf5DatasetList ListHdf5Datasets(hid_t file, size_t most) {
  Hdf5DatasetList out;
  const Id access = ConfinedAccess(H5P_LINK_ACCESS),
           of_dataset = ConfinedAccess(H5P_DATASET_ACCESS);
  std::deque<std::string> groups{"/"};               // the nearest to the top first
  std::set<std::pair<unsigned long, haddr_t>> seen;  // groups may hold each other
  for (size_t looked_at = 0; !groups.empty(); groups.pop_front()) {
    if (looked_at >= kMostPlaces) {
      out.more = true;
      break;
    }
    std::vector<std::string> names;
    hsize_t at = 0;
    H5Literate_by_name(
        file, groups.front().c_str(), H5_INDEX_NAME, H5_ITER_INC, &at,
        [](hid_t, const char* name, const H5L_info_t* link, void* to) -> herr_t {
          auto& list = *static_cast<std::vector<std::string>*>(to);
          if (link->type == H5L_TYPE_HARD) list.emplace_back(name);
          return list.size() >= kMostPlaces ? 1 : 0;
        },
        &names, access.get());
    looked_at += names.size() + 1;
    for (const std::string& name : names) {
      std::string path = absl::StrCat(groups.front() == "/" ? "" : groups.front(), "/", name);
      H5O_info_t object;
      if (H5Oget_info_by_name2(file, path.c_str(), &object, H5O_INFO_BASIC, access.get()) < 0)
        continue;
      if (object.type == H5O_TYPE_GROUP && seen.emplace(object.fileno, object.addr).second)
        groups.push_back(path);
      if (object.type != H5O_TYPE_DATASET) continue;
      if (out.entries.size() == most) {
        out.more = true;
        break;
      }
      std::vector<int64_t> shape = ShapeOf(file, path, of_dataset.get());
      out.entries.push_back({.path = std::move(path), .shape = std::move(shape)});
    }
  }
  H5Eclear2(H5E_DEFAULT);
  return out;
}

}  // namespace octavo::storage

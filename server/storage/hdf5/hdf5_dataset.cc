#include "server/storage/hdf5/hdf5_dataset.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/hdf5/dataset_errors.h"

namespace octavo::storage {
namespace {

using Id = Hdf5Id;
constexpr int kDeepest = 8;  // virtual datasets of virtual datasets
constexpr size_t kMostParts = 65536;
// Pairs of parts of a virtual dataset whose boxes, and whose selections, are compared.
constexpr int64_t kMostLookedAt = 50'000'000, kMostCompared = 4096;
constexpr int64_t kMostChunk = int64_t{1} << 30;  // largest chunk that is decompressed as a whole

enum class Written { kUnknown, kNothing, kPart, kAll };

/// The share of a dataset that the file holds. It counts chunks, because going by bytes the library
/// reports compressed chunks as missing.
Written WrittenOf(hid_t data) {
  const Id creation(H5Dget_create_plist(data), H5Pclose), space(H5Dget_space(data), H5Sclose);
  if (!creation || !space) return Written::kUnknown;
  if (H5Sget_simple_extent_npoints(space.get()) == 0) return Written::kAll;
  hsize_t extent[H5S_MAX_RANK], chunk[H5S_MAX_RANK], wanted = 1, there = 0;
  const int rank = H5Sget_simple_extent_dims(space.get(), extent, nullptr);
  if (H5Pget_layout(creation.get()) == H5D_CHUNKED &&
      H5Pget_chunk(creation.get(), H5S_MAX_RANK, chunk) == rank) {
    for (int d = 0; d < rank; ++d) wanted *= (extent[d] + chunk[d] - 1) / chunk[d];
    if (H5Dget_num_chunks(data, space.get(), &there) < 0) return Written::kUnknown;
    return there == 0 ? Written::kNothing : there < wanted ? Written::kPart : Written::kAll;
  }
  H5D_space_status_t allocated = H5D_SPACE_STATUS_ALLOCATED;
  if (H5Dget_space_status(data, &allocated) < 0) return Written::kUnknown;
  return allocated == H5D_SPACE_STATUS_NOT_ALLOCATED ? Written::kNothing : Written::kAll;
}

/// Bytes of a chunk once it is decompressed; 0 where the data lie in one piece.
int64_t ChunkBytes(hid_t data, hid_t creation) {
  hsize_t chunk[H5S_MAX_RANK];
  if (H5Pget_layout(creation) != H5D_CHUNKED) return 0;
  const int rank = H5Pget_chunk(creation, H5S_MAX_RANK, chunk);
  const Id type(H5Dget_type(data), H5Tclose);
  auto bytes = static_cast<double>(H5Tget_size(type.get()));  // large enough for any product
  for (int d = 0; d < rank; ++d) bytes *= static_cast<double>(chunk[d]);
  return static_cast<int64_t>(std::min(bytes, 1e18));
}

/// The selection of `from` on the extent of `data`, because a mapping in a file has no extent of
/// its own. Empty if it does not fit.
Id OnExtentOf(hid_t data, hid_t from) {
  Id space(H5Dget_space(data), H5Sclose);
  if (!space || H5Sget_select_type(from) == H5S_SEL_ALL) return space;
  if (H5Sget_simple_extent_ndims(space.get()) != H5Sget_simple_extent_ndims(from) ||
      H5Sselect_copy(space.get(), from) < 0 || H5Sselect_valid(space.get()) <= 0)
    return Id();
  return space;
}

/// Projections of selections want hyperslabs.
void SelectAllOf(hid_t space) {
  hsize_t first[H5S_MAX_RANK] = {}, extent[H5S_MAX_RANK];
  if (H5Sget_select_type(space) == H5S_SEL_ALL && H5Sget_simple_extent_ndims(space) > 0 &&
      H5Sget_simple_extent_dims(space, extent, nullptr) > 0)
    H5Sselect_hyperslab(space, H5S_SELECT_SET, first, nullptr, extent, nullptr);
}

bool IsUnlimited(hid_t space) {
  hsize_t start[H5S_MAX_RANK], stride[H5S_MAX_RANK], count[H5S_MAX_RANK], block[H5S_MAX_RANK];
  if (H5Sget_select_type(space) != H5S_SEL_HYPERSLABS || H5Sis_regular_hyperslab(space) <= 0)
    return false;
  if (H5Sget_regular_hyperslab(space, start, stride, count, block) < 0) return true;
  const int rank = H5Sget_simple_extent_ndims(space);
  return std::any_of(count, count + rank, [](hsize_t n) { return n == H5S_UNLIMITED; }) ||
         std::any_of(block, block + rank, [](hsize_t n) { return n == H5S_UNLIMITED; });
}

template <class F>
std::string TextOf(F get) {  // ssize_t get(char*, size_t)
  const ssize_t length = get(nullptr, 0);
  if (length <= 0) return "";
  std::string text(static_cast<size_t>(length) + 1, '\0');
  get(text.data(), text.size());
  text.pop_back();
  return text;
}

}  // namespace

/// Opens a dataset and its source datasets, each of them once.
class Hdf5Dataset::Opener {
 public:
  Opener(Hdf5Links& links, int64_t cache_bytes, absl::Span<const H5Z_filter_t> own)
      : links_(links), cache_bytes_(cache_bytes), own_(own) {}

  absl::StatusOr<std::unique_ptr<Hdf5Dataset>> Open(const Hdf5Place& place,
                                                    const std::string& label, int depth) {
    const std::string& path = links_.path();
    const auto damaged = [&] {
      return DamagedProjections(path, label, absl::StrCat("cannot be opened: ", Hdf5Reason()));
    };
    const Id access = ConfinedAccess(H5P_DATASET_ACCESS);
    if (cache_bytes_ > 0)
      H5Pset_chunk_cache(access.get(), 10007, static_cast<size_t>(cache_bytes_),
                         1.0);  // evict chunks that were read completely first
    H5O_info_t info;
    if (H5Oget_info_by_name2(place.file, place.path.c_str(), &info, H5O_INFO_BASIC, access.get()) <
        0)
      return damaged();
    if (info.type != H5O_TYPE_DATASET)
      return BadProjections(path, label, "is a group", "a dataset");
    auto dataset = std::make_unique<Hdf5Dataset>();
    dataset->path_ = path;
    dataset->label_ = label;
    dataset->data_ = Id(H5Dopen2(place.file, place.path.c_str(), access.get()), H5Dclose);
    if (!dataset->data_) return damaged();
    const Id creation(H5Dget_create_plist(dataset->id()), H5Pclose);
    if (!creation) return damaged();
    if (H5Pget_external_count(creation.get()) > 0)
      return BadProjections(path, label, "lies in other files without a format (external storage)",
                            "data in HDF5 files");
    if (const int64_t chunk = ChunkBytes(dataset->id(), creation.get());
        chunk > kMostChunk && H5Pget_nfilters(creation.get()) > 0)
      return BadProjections(path, label,
                            absl::StrCat("is compressed in chunks of ", chunk, " bytes"),
                            absl::StrCat("at most ", kMostChunk));
    for (int i = 0; i < H5Pget_nfilters(creation.get()); ++i) {
      unsigned flags = 0, config = 0;
      size_t values = 0;
      char text[64] = "";
      const H5Z_filter_t filter = H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags,
                                                 &values, nullptr, sizeof text, text, &config);
      if (std::find(own_.begin(), own_.end(), filter) != own_.end()) {
        if (depth == 0) continue;
        return BadProjections(
            path, label,
            absl::StrCat("is a part of a virtual dataset and compressed with "
                         "filter ",
                         filter, text[0] != '\0' ? absl::StrCat(" (", text, ")") : ""),
            "deflate and shuffle in parts; this filter where the dataset is "
            "named itself");
      }
      if (H5Zfilter_avail(filter) <= 0) {
        H5Eclear2(H5E_DEFAULT);
        return UnknownCompression(
            path, label,
            absl::StrCat("filter ", filter, text[0] != '\0' ? absl::StrCat(" (", text, ")") : ""));
      }
    }
    dataset->virtual_ = H5Pget_layout(creation.get()) == H5D_VIRTUAL;
    if (dataset->virtual_)
      OCTAVO_RETURN_IF_ERROR(OpenParts(place, creation.get(), depth, dataset.get()));
    return dataset;
  }

 private:
  absl::Status OpenParts(const Hdf5Place& place, hid_t creation, int depth, Hdf5Dataset* dataset) {
    const std::string &path = links_.path(), &label = dataset->label_;
    if (depth >= kDeepest)
      return BadProjections(path, label, "is virtual, of virtual datasets that go on and on",
                            absl::StrCat(kDeepest, " deep"));
    size_t count = 0;
    if (H5Pget_virtual_count(creation, &count) < 0 || count > kMostParts)
      return BadProjections(path, label, absl::StrCat("is virtual, of ", count, " parts"),
                            absl::StrCat("at most ", kMostParts));
    hssize_t covered = 0;
    for (size_t i = 0; i < count; ++i) {
      const std::string file = TextOf(
          [&](char* to, size_t size) { return H5Pget_virtual_filename(creation, i, to, size); });
      const std::string name = TextOf(
          [&](char* to, size_t size) { return H5Pget_virtual_dsetname(creation, i, to, size); });
      const Id here(H5Pget_virtual_vspace(creation, i), H5Sclose),
          there(H5Pget_virtual_srcspace(creation, i), H5Sclose);
      const std::string target = absl::StrCat("'", file, ":", name, "'");
      if (!here || !there)
        return DamagedProjections(
            path, label,
            absl::StrCat("has a mapping to ", target, " that cannot be read: ", Hdf5Reason()));
      if (IsUnlimited(here.get()) || IsUnlimited(there.get()))
        return BadProjections(path, label,
                              absl::StrCat("takes data from ", target, " without an end"),
                              "mappings of a fixed extent");
      OCTAVO_ASSIGN_OR_RETURN(const auto source, SourceOf(place, file, name, depth));
      Part part{.here = OnExtentOf(dataset->id(), here.get()),
                .there = OnExtentOf(source->id(), there.get()),
                .first = {},
                .last = {},
                .source = source};
      const hssize_t elements = part.here ? H5Sget_select_npoints(part.here.get()) : -1;
      if (!part.there || elements < 0 || elements != H5Sget_select_npoints(part.there.get()))
        return BadProjections(
            path, label, absl::StrCat("takes from ", target, " elements that it does not have"),
            "mappings within both datasets");
      if (elements == 0) continue;
      SelectAllOf(part.here.get());
      SelectAllOf(part.there.get());
      if (H5Sget_select_bounds(part.here.get(), part.first, part.last) < 0)
        return DamagedProjections(
            path, label, absl::StrCat("has a mapping that cannot be read: ", Hdf5Reason()));
      covered += elements;
      dataset->parts_.push_back(std::move(part));
    }
    // Elements that no part covers would be left as the memory was.
    const Id space(H5Dget_space(dataset->id()), H5Sclose);
    if (const hssize_t all = H5Sget_simple_extent_npoints(space.get()); covered != all)
      return BadProjections(
          path, label,
          absl::StrCat("is virtual, and its parts have ", covered, " of its ", all, " values"),
          "parts that cover all of it, once");
    return CheckApart(*dataset);
  }

  // Parts that have as many elements as the dataset cover it if no two of them overlap.
  absl::Status CheckApart(const Hdf5Dataset& dataset) {
    const Id space(H5Dget_space(dataset.id()), H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    std::vector<const Part*> parts;
    for (const Part& part : dataset.parts_) parts.push_back(&part);
    std::sort(parts.begin(), parts.end(),
              [](const Part* a, const Part* b) { return a->first[0] < b->first[0]; });
    int64_t looked_at = 0, compared = 0;
    for (size_t a = 0; a < parts.size(); ++a) {
      for (size_t b = a + 1; b < parts.size() && parts[b]->first[0] <= parts[a]->last[0]; ++b) {
        bool apart = false;
        for (int d = 1; d < rank; ++d)
          apart = apart || parts[a]->first[d] > parts[b]->last[d] ||
                  parts[b]->first[d] > parts[a]->last[d];
        if (++looked_at > kMostLookedAt || (!apart && ++compared > kMostCompared))
          return BadProjections(dataset.path_, dataset.label_,
                                "is virtual, of too many parts that reach into each other",
                                absl::StrCat("at most ", kMostCompared, " pairs of such parts"));
        if (apart) continue;
        const Id both(H5Scombine_select(parts[a]->here.get(), H5S_SELECT_AND, parts[b]->here.get()),
                      H5Sclose);
        if (!both)
          return BadProjections(dataset.path_, dataset.label_,
                                "is virtual, of parts that cannot be compared with each other",
                                "boxes and regular grids");
        if (H5Sget_select_npoints(both.get()) != 0)
          return BadProjections(dataset.path_, dataset.label_,
                                "is virtual, and two of its parts have values for the same places",
                                "parts that cover all of it, once");
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Hdf5Dataset>> SourceOf(const Hdf5Place& place,
                                                              const std::string& file,
                                                              const std::string& name, int depth) {
    OCTAVO_ASSIGN_OR_RETURN(const Hdf5Place at, links_.FindSource(place, file, name));
    auto& known = sources_[{at.file_path, at.path}];
    if (known == nullptr) {
      OCTAVO_ASSIGN_OR_RETURN(known, Open(at, links_.Label(place.path, at), depth + 1));
    }
    return known;
  }

  Hdf5Links& links_;
  const int64_t cache_bytes_;
  const absl::Span<const H5Z_filter_t> own_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const Hdf5Dataset>> sources_;
};

absl::StatusOr<std::unique_ptr<Hdf5Dataset>> Hdf5Dataset::Open(Hdf5Links& links,
                                                               const Hdf5Place& place,
                                                               const std::string& label,
                                                               int64_t cache_bytes,
                                                               absl::Span<const H5Z_filter_t> own) {
  return Opener(links, cache_bytes, own).Open(place, label, 0);
}

absl::Status Hdf5Dataset::CheckWritten() const {
  for (const Part& part : parts_) OCTAVO_RETURN_IF_ERROR(part.source->CheckWritten());
  if (virtual_) return absl::OkStatus();
  switch (WrittenOf(id())) {
    case Written::kUnknown:
      return DamagedProjections(path_, label_, absl::StrCat("cannot be opened: ", Hdf5Reason()));
    case Written::kNothing:
      return BadProjections(path_, label_, "was never written", "a dataset with data");
    case Written::kPart:
      return BadProjections(path_, label_, "was written in part only", "a dataset that is whole");
    case Written::kAll: break;
  }
  return absl::OkStatus();
}

int64_t Hdf5Dataset::Chunk(int d) const {
  const Id creation(H5Dget_create_plist(id()), H5Pclose), space(H5Dget_space(id()), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (!parts_.empty())
    return H5Sget_simple_extent_ndims(parts_[0].there.get()) == rank ? parts_[0].source->Chunk(d)
                                                                     : 1;
  hsize_t chunk[H5S_MAX_RANK];
  return H5Pget_layout(creation.get()) == H5D_CHUNKED &&
                 H5Pget_chunk(creation.get(), H5S_MAX_RANK, chunk) == rank
             ? static_cast<int64_t>(chunk[d])
             : 1;
}

bool Hdf5Dataset::Read(hid_t type, hid_t memory, hid_t space, void* out) const {
  if (!virtual_) {
    if (!check_.has_value()) check_.emplace(id(), /*remembers=*/true);
    return CheckedHdf5Read(*check_, id(), type, memory, space, out);
  }
  hsize_t first[H5S_MAX_RANK], last[H5S_MAX_RANK];
  if (H5Sget_select_npoints(space) == 0) return true;
  if (H5Sget_select_bounds(space, first, last) < 0) return false;
  const int rank = H5Sget_simple_extent_ndims(space);
  for (const Part& part : parts_) {
    bool apart = false;
    for (int d = 0; d < rank; ++d)
      apart = apart || part.first[d] > last[d] || part.last[d] < first[d];
    if (apart) continue;
    const Id wanted(H5Sselect_project_intersection(part.here.get(), part.there.get(), space),
                    H5Sclose);
    const Id to(H5Sselect_project_intersection(space, memory, part.here.get()), H5Sclose);
    if (!wanted || !to) return false;
    if (H5Sget_select_npoints(wanted.get()) > 0 &&
        !part.source->Read(type, to.get(), wanted.get(), out))
      return false;
  }
  return true;
}

}  // namespace octavo::storage

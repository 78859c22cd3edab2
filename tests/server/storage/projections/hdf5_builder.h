#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <hdf5.h>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "server/storage/io/hdf5_library.h"

namespace octavo::storage::testing {

inline hid_t TypeOf(uint8_t) { return H5T_STD_U8LE; }
inline hid_t TypeOf(uint16_t) { return H5T_STD_U16LE; }
inline hid_t TypeOf(int16_t) { return H5T_STD_I16LE; }
inline hid_t TypeOf(uint32_t) { return H5T_STD_U32LE; }
inline hid_t TypeOf(int32_t) { return H5T_STD_I32LE; }
inline hid_t TypeOf(float) { return H5T_IEEE_F32LE; }
inline hid_t TypeOf(double) { return H5T_IEEE_F64LE; }

/// Writes HDF5 files as beamlines do, with the library alone. It creates the groups that paths
/// need. For one thread.
class Hdf5Builder {
 public:
  /// `before`: bytes in front of the file that are none of HDF5's (a power of 2 from 512 on, or 0).
  explicit Hdf5Builder(const std::string& path, hsize_t before = 0) {
    QuietHdf5();
    H5PLset_loading_state(0);  // plug-ins that are installed would change what Encoded writes
    const hid_t creation = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_userblock(creation, before);
    file_ = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, H5P_DEFAULT);
    H5Pclose(creation);
    links_ = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links_, 1);
    EXPECT_GE(file_, 0) << path;
  }
  ~Hdf5Builder() {
    H5Pclose(links_);
    H5Fclose(file_);
  }
  Hdf5Builder(const Hdf5Builder&) = delete;

  struct Layout {
    std::vector<hsize_t> chunk;
    unsigned deflate = 0;
    hid_t type = -1;  // in the file; -1 = that of the values
    bool shuffle = false, checksum = false, nbit = false, scale_offset = false;
    bool plain_edges = false;  // chunks that reach over the end of the data pass no filter
  };

  template <class T>
  void Data(const std::string& name, const std::vector<hsize_t>& shape,
            const std::vector<T>& values) {
    Data(name, shape, values, Layout{});
  }
  /// Makes a dataset without values, as one that was never written.
  template <class T>
  void Data(const std::string& name, const std::vector<hsize_t>& shape,
            const std::vector<T>& values, const Layout& layout) {
    const hid_t space =
        shape.empty() ? H5Screate(H5S_SCALAR)
                      : H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    if (!layout.chunk.empty())
      H5Pset_chunk(creation, static_cast<int>(layout.chunk.size()), layout.chunk.data());
    if (layout.shuffle) H5Pset_shuffle(creation);
    if (layout.nbit) H5Pset_nbit(creation);
    if (layout.scale_offset) H5Pset_scaleoffset(creation, H5Z_SO_INT, 0);
    if (layout.deflate > 0) H5Pset_deflate(creation, layout.deflate);
    if (layout.checksum) H5Pset_fletcher32(creation);
    if (layout.plain_edges) H5Pset_chunk_opts(creation, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
    const hid_t data = H5Dcreate2(file_, name.c_str(), layout.type >= 0 ? layout.type : TypeOf(T{}),
                                  space, links_, creation, H5P_DEFAULT);
    EXPECT_GE(data, 0) << name;
    if (!values.empty()) {
      EXPECT_GE(H5Dwrite(data, TypeOf(T{}), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0)
          << name;
    }
    H5Dclose(data);
    H5Pclose(creation);
    H5Sclose(space);
  }
  /// Makes a dataset of rank 3 whose chunks pass a filter that the library does not have: `encode`
  /// makes the bytes of a whole chunk. Elements beyond the end of the data are 0.
  template <class T>
  void Encoded(const std::string& name, const std::vector<hsize_t>& shape,
               const std::vector<T>& values, const Layout& layout, H5Z_filter_t filter,
               const std::vector<unsigned>& parameters,
               const std::function<std::string(const std::string&)>& encode) {
    const hid_t space = H5Screate_simple(3, shape.data(), nullptr),
                creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, 3, layout.chunk.data());
    if (layout.shuffle) H5Pset_shuffle(creation);
    // Optional: the library refuses to make what it cannot write.
    EXPECT_GE(
        H5Pset_filter(creation, filter, H5Z_FLAG_OPTIONAL, parameters.size(), parameters.data()),
        0);
    if (layout.deflate > 0) H5Pset_deflate(creation, layout.deflate);
    const hid_t data = H5Dcreate2(file_, name.c_str(), layout.type >= 0 ? layout.type : TypeOf(T{}),
                                  space, links_, creation, H5P_DEFAULT);
    EXPECT_GE(data, 0) << name;
    const auto& c = layout.chunk;
    for (hsize_t f = 0; f < shape[0]; f += c[0]) {
      for (hsize_t r = 0; r < shape[1]; r += c[1]) {
        for (hsize_t x = 0; x < shape[2]; x += c[2]) {
          std::vector<T> chunk(c[0] * c[1] * c[2]);
          for (hsize_t i = f; i < std::min(f + c[0], shape[0]); ++i) {
            for (hsize_t j = r; j < std::min(r + c[1], shape[1]); ++j) {
              for (hsize_t k = x; k < std::min(x + c[2], shape[2]); ++k)
                chunk[((i - f) * c[1] + j - r) * c[2] + k - x] =
                    values[(i * shape[1] + j) * shape[2] + k];
            }
          }
          const std::string bytes = encode(
              std::string(reinterpret_cast<const char*>(chunk.data()), chunk.size() * sizeof(T)));
          const hsize_t at[3] = {f, r, x};
          EXPECT_GE(H5Dwrite_chunk(data, H5P_DEFAULT, 0, at, bytes.size(), bytes.data()), 0);
        }
      }
    }
    H5Dclose(data);
    H5Pclose(creation);
    H5Sclose(space);
  }
  void Group(const std::string& name) {
    H5Gclose(H5Gcreate2(file_, name.c_str(), links_, H5P_DEFAULT, H5P_DEFAULT));
  }
  void Text(const std::string& name, const std::string& text) {
    const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, H5T_VARIABLE);
    const hid_t data =
        H5Dcreate2(file_, name.c_str(), type, space, links_, H5P_DEFAULT, H5P_DEFAULT);
    const char* pointer = text.c_str();
    H5Dwrite(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &pointer);
    H5Dclose(data);
    H5Sclose(space);
    H5Tclose(type);
  }
  /// Writes a fixed-length string attribute, as C programs do.
  void Attribute(const std::string& object, const std::string& name, const std::string& text) {
    const hid_t at = H5Oopen(file_, object.c_str(), H5P_DEFAULT), type = H5Tcopy(H5T_C_S1),
                space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, text.size() + 1);
    const hid_t attribute = H5Acreate2(at, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT);
    EXPECT_GE(H5Awrite(attribute, type, text.c_str()), 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
    H5Oclose(at);
  }
  void ExternalLink(const std::string& name, const std::string& file, const std::string& object) {
    EXPECT_GE(
        H5Lcreate_external(file.c_str(), object.c_str(), file_, name.c_str(), links_, H5P_DEFAULT),
        0);
  }
  void SoftLink(const std::string& name, const std::string& target) {
    EXPECT_GE(H5Lcreate_soft(target.c_str(), file_, name.c_str(), links_, H5P_DEFAULT), 0);
  }
  /// A box of a virtual dataset that shows the whole of another dataset.
  struct Source {
    std::string file, dataset;
    std::vector<hsize_t> shape, at;
  };
  /// Makes a virtual dataset of u16.
  void VirtualData(const std::string& name, const std::vector<hsize_t>& shape,
                   const std::vector<Source>& sources) {
    const auto rank = static_cast<int>(shape.size());
    const hid_t space = H5Screate_simple(rank, shape.data(), nullptr),
                creation = H5Pcreate(H5P_DATASET_CREATE);
    for (const Source& source : sources) {
      const hid_t there = H5Screate_simple(rank, source.shape.data(), nullptr);
      EXPECT_GE(H5Sselect_hyperslab(space, H5S_SELECT_SET, source.at.data(), nullptr,
                                    source.shape.data(), nullptr),
                0);
      EXPECT_GE(H5Pset_virtual(creation, space, source.file.c_str(), source.dataset.c_str(), there),
                0)
          << name;
      H5Sclose(there);
    }
    H5Sselect_all(space);
    const hid_t data =
        H5Dcreate2(file_, name.c_str(), H5T_STD_U16LE, space, links_, creation, H5P_DEFAULT);
    EXPECT_GE(data, 0) << name;
    H5Dclose(data);
    H5Pclose(creation);
    H5Sclose(space);
  }
  void Unlink(const std::string& name) {
    EXPECT_GE(H5Ldelete(file_, name.c_str(), H5P_DEFAULT), 0);
  }
  /// Position of a dataset's first chunk in the file: offset and bytes.
  std::pair<int64_t, int64_t> FirstChunk(const std::string& name) {
    const hid_t data = H5Dopen2(file_, name.c_str(), H5P_DEFAULT);
    hsize_t offset[3], bytes = 0;
    unsigned mask = 0;
    haddr_t address = 0;
    const hid_t space = H5Dget_space(data);
    EXPECT_GE(H5Dget_chunk_info(data, space, 0, offset, &mask, &address, &bytes), 0);
    H5Sclose(space);
    H5Dclose(data);
    return {static_cast<int64_t>(address), static_cast<int64_t>(bytes)};
  }

 private:
  hid_t file_ = -1, links_ = -1;
};

}  // namespace octavo::storage::testing

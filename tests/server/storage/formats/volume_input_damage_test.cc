#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

#include "server/storage/formats/volume_input.h"
#include "tests/server/storage/formats/tiff_builder.h"
#include "tests/server/storage/storage_test_base.h"
#include "tests/support/seed.h"

// Small files of every kind, each byte of them damaged: the reader answers with the voxels or with
// an error, takes no memory that the file only claims to need, and never crashes. HDF5 has a
// process of its own for this (server/storage/projections/hdf5_probe.h).
namespace octavo::storage {
namespace {

using octavo::testing::FreshSeed;
using testing::StorageTest;

class DamagedInputs : public StorageTest {
 protected:
  /// Opens a file and reads a small box at each end. Returns whether all of that worked.
  static bool Read(const std::string& bytes, const VolumeInputOptions& options) {
    UniqueFd fd(::memfd_create("damaged", MFD_CLOEXEC));
    EXPECT_EQ(::write(fd.get(), bytes.data(), bytes.size()), std::ssize(bytes));
    const auto input = OpenVolumeInput(std::move(fd), "damaged", options);
    if (!input.ok()) {
      EXPECT_FALSE(input.status().message().empty());
      return false;
    }
    const VolumeInputInfo& info = (*input)->info();
    bool fine = true;
    for (const bool last : {false, true}) {
      base::ArrayBox box;
      int64_t elements = 1;
      for (const int64_t extent : info.shape()) {
        const int64_t count = std::min<int64_t>(extent, 8);
        box.start.push_back(last ? extent - count : 0);
        box.count.push_back(count);
        elements *= count;
      }
      if (elements > (1 << 20)) return fine;  // many axes
      std::string out(static_cast<size_t>(elements * info.type.bytes), '\0');
      fine = (*input)->Read(box, absl::MakeSpan(out.data(), out.size())).ok() && fine;
    }
    return fine;
  }

  /// Changes and cuts off `bytes` in every place.
  static void Damage(const std::string& name, const std::string& bytes,
                     const VolumeInputOptions& options) {
    SCOPED_TRACE(name);
    std::mt19937 random(FreshSeed());
    ASSERT_TRUE(Read(bytes, options));
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (const int change : {0x01, 0x80, 0xFF, static_cast<int>(1 + random() % 255)}) {
        std::string damaged = bytes;
        damaged[i] = static_cast<char>(damaged[i] ^ change);
        (void)Read(damaged, options);
      }
      (void)Read(bytes.substr(0, i), options);
    }
    for (int i = 0; i < 2000; ++i) {  // several at once
      std::string damaged = bytes;
      for (int k = 0; k < 4; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
      (void)Read(damaged, options);
    }
  }

  static std::string Bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(DamagedInputs, OfEveryFormatThatIsWritten) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 3, 4, 5, DType::kU16);
  meta.title.clear();
  auto store = Open();
  for (const Format format :
       {Format::kNpy, Format::kNrrd, Format::kNifti, Format::kOmeTiff, Format::kMatlab}) {
    for (const bool compress : {false, true}) {
      const std::string name = absl::StrCat(FormatName(format), compress);
      const auto committed =
          Commit(*store, name, meta, data, {.format = format, .compress = compress});
      ASSERT_TRUE(committed.ok()) << committed.status();
      const std::string bytes = Bytes(committed->path);
      // Without the metadata beside it, which would find every change.
      Damage(name, bytes, {.most_chunk_bytes = 64 << 20});
    }
  }
}

TEST_F(DamagedInputs, OfTiffFilesOfOtherPrograms) {
  for (const int compression : {1, 5, 7, 8, 32773, 50000}) {
    testing::TiffBuilder builder(compression == 5, compression == 8);
    std::string pixels;
    for (int i = 0; i < 256; ++i) pixels += static_cast<char>(i % 16 * 3 + i / 16);
    const std::string packed = compression == 1       ? pixels
                               : compression == 5     ? testing::Lzw(pixels)
                               : compression == 7     ? testing::Jpeg(pixels, 16, 16)
                               : compression == 8     ? testing::Deflate(pixels)
                               : compression == 32773 ? testing::PackBits(pixels)
                                                      : testing::Zstd(pixels);
    const uint64_t at = builder.Data(packed);
    const auto c = static_cast<uint64_t>(compression);
    std::string description = "ImageJ=1.5\nimages=2\nslices=2\nunit=um\nspacing=2\n";
    description.push_back('\0');
    const testing::TiffBuilder::Tags tags = {
        {256, {3, {16}, ""}},
        {257, {3, {16}, ""}},
        {258, {3, {8}, ""}},
        {259, {3, {c}, ""}},
        {262, {3, {1}, ""}},
        {270, {2, {}, description}},
        {273, {4, {at}, ""}},
        {277, {3, {1}, ""}},
        {278, {3, {16}, ""}},
        {279, {4, {packed.size()}, ""}},
        {317, {3, {static_cast<uint64_t>(compression == 5 || compression == 8 ? 2 : 1)}, ""}}};
    builder.Page(tags);
    builder.Page(tags);
    Damage(absl::StrCat("compression ", compression), builder.bytes(),
           {.most_chunk_bytes = 64 << 20});
  }
}

}  // namespace
}  // namespace octavo::storage

// Scans in several HDF5 files: external links and virtual datasets, inside and outside the roots.

#include <filesystem>

#include "server/storage/projections/projection_input.h"
#include "tests/server/storage/projections/projection_input_fixture.h"

namespace octavo::storage {
namespace {

using namespace storage::testing;  // NOLINT: the fixture's own words
using octavo::testing::IsError;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Folders "raw" and "proc" under a root, and "outside" beside it.
class ProjectionLinksTest : public ::testing::Test {
 protected:
  ProjectionLinksTest() {
    for (const char* name : {"root/raw", "root/proc", "outside"})
      std::filesystem::create_directories(folder_ / name);
    options_.roots = {folder_ / "root"};
  }
  /// A file of frames [count, rows, columns] of one kind at /entry/data.
  void Detector(const std::string& name, int64_t first, int64_t count) {
    const auto all = Frames<uint16_t>(first + count, 0);
    Hdf5Builder file(folder_ / name);
    file.Data("/entry/data", {static_cast<hsize_t>(count), kRows, kColumns},
              std::vector<uint16_t>(all.begin() + first * kRows * kColumns, all.end()),
              {.chunk = {1, 2, kColumns}, .deflate = 1});
  }
  /// Makes a Data Exchange file whose projections `add` makes. Returns its path.
  template <class F>
  std::string Master(F add, const std::string& name = "root/proc/master.h5") {
    Hdf5Builder file(folder_ / name);
    file.Data("/exchange/theta", {kAngles}, Degrees(kAngles));
    add(file);
    return folder_ / name;
  }
  void IsRead(const std::string& path) {
    const auto input = OpenProjections(path, options_);
    ASSERT_THAT(input, IsOk());
    EXPECT_EQ((*input)->info().projections, kAngles);
    EXPECT_EQ(ReadAll<uint16_t>(**input, FrameKind::kProjection), Frames<uint16_t>(kAngles, 0));
    // The same for a part of it.
    const ProjectionBox box{
        .first_frame = 1, .frames = 3, .first_row = 1, .rows = 2, .first_column = 2, .columns = 3};
    const auto all = Frames<uint16_t>(kAngles, 0);
    std::vector<uint16_t> expected;
    for (int64_t f = 1; f < 4; ++f) {
      for (int64_t r = 1; r < 3; ++r) {
        for (int64_t c = 2; c < 5; ++c)
          expected.push_back(all[static_cast<size_t>((f * kRows + r) * kColumns + c)]);
      }
    }
    EXPECT_EQ(Read<uint16_t>(**input, box), expected);
  }
  /// Expects a refusal that names the link and its target.
  void IsRefused(const std::string& path, const std::string& link, const std::string& target,
                 const std::string& why) {
    const auto input = OpenProjections(path, options_);
    EXPECT_THAT(input, IsError(kInvalid, link));
    EXPECT_THAT(std::string(input.status().message()), AllOf(HasSubstr(target), HasSubstr(why)));
    EXPECT_EQ(InfoOf(input.status()).reason, Reason::kBadProjections);
  }

  const TempFolder folder_;
  ProjectionOptions options_;
};

TEST_F(ProjectionLinksTest, AnExternalLinkWithinTheRootsIsFollowed) {
  Detector("root/raw/detector.h5", 0, kAngles);
  for (const std::string& file :
       {std::string("../raw/detector.h5"), folder_ / "root/raw/detector.h5"}) {
    IsRead(Master([&](Hdf5Builder& f) { f.ExternalLink("/exchange/data", file, "/entry/data"); }));
  }
  // Through a soft link to a group behind an external link, and from one file to the next.
  IsRead(Master([&](Hdf5Builder& f) {
    f.ExternalLink("/away", "../raw/detector.h5", "/entry");
    f.SoftLink("/exchange/data", "/away/data");
  }));
  {
    Hdf5Builder between(folder_ / "root/raw/between.h5");
    between.ExternalLink("/here", "detector.h5", "entry/data");
  }
  IsRead(Master(
      [&](Hdf5Builder& f) { f.ExternalLink("/exchange/data", "../raw/between.h5", "/here"); }));
}

TEST_F(ProjectionLinksTest, AnNxTomoMayLieInOtherFiles) {
  const std::string detector = "/scan/tomo/instrument/detector/";
  {
    Hdf5Builder raw(folder_ / "root/raw/scan.nxs");
    raw.Data(detector + "data", {kAngles, kRows, kColumns}, Frames<uint16_t>(kAngles, 0));
    raw.Data(detector + "image_key", {kAngles}, std::vector<int32_t>{0, 0, 0, 0, 0});
    raw.Data("/scan/tomo/sample/rotation_angle", {kAngles}, Degrees(kAngles));
    raw.Text("/scan/tomo/definition", "NXtomo");
  }
  {
    Hdf5Builder master(folder_ / "root/proc/master.nxs");
    master.ExternalLink("/entry", "../raw/scan.nxs", "/scan/tomo");
    master.ExternalLink("/notes", "../raw/not_there.nxs", "/");  // irrelevant to the reader
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto input,
                         OpenProjections(folder_ / "root/proc/master.nxs", options_));
    EXPECT_EQ(input->info().format, "nxtomo");
    EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), Frames<uint16_t>(kAngles, 0));
  }
  // All data lie outside the roots: the error says that they must not be read, not that they are
  // missing.
  {
    Hdf5Builder master(folder_ / "root/proc/master.nxs");
    master.ExternalLink("/entry", "../../outside/scan.nxs", "/scan/tomo");
  }
  IsRefused(folder_ / "root/proc/master.nxs", "/entry", "'../../outside/scan.nxs:/scan/tomo'",
            "outside of the configured roots");
}

TEST_F(ProjectionLinksTest, LinksOutsideAreRefusedWhetherThereIsAFileOrNot) {
  Detector("outside/detector.h5", 0, kAngles);
  for (const std::string& file :
       {std::string("../../outside/detector.h5"), folder_ / "outside/detector.h5",
        std::string("../../outside/none.h5"), std::string("/etc/passwd")}) {
    IsRefused(
        Master([&](Hdf5Builder& f) { f.ExternalLink("/exchange/data", file, "/entry/data"); }),
        "/exchange/data", "'" + file + ":/entry/data'",
        "which lies outside of the configured roots");
  }
  // The canonical path decides, not the name.
  std::filesystem::create_symlink(folder_ / "outside/detector.h5",
                                  folder_ / "root/raw/looks_fine.h5");
  IsRefused(Master([&](Hdf5Builder& f) {
              f.ExternalLink("/exchange/data", "../raw/looks_fine.h5", "/entry/data");
            }),
            "/exchange/data", "'../raw/looks_fine.h5:/entry/data'",
            "which lies outside of the configured roots");
  std::filesystem::create_directory_symlink(folder_ / "outside", folder_ / "root/away");
  IsRefused(Master([&](Hdf5Builder& f) {
              f.ExternalLink("/exchange/data", "../away/detector.h5", "/entry/data");
            }),
            "/exchange/data", "'../away/detector.h5:/entry/data'",
            "which lies outside of the configured roots");
  // A root that is itself a symbolic link works as well.
  std::filesystem::create_directory_symlink(folder_ / "root", folder_ / "beamline");
  Detector("root/raw/detector.h5", 0, kAngles);
  options_.roots = {folder_ / "beamline"};
  IsRead(Master([&](Hdf5Builder& f) {
    f.ExternalLink("/exchange/data", folder_ / "beamline/raw/detector.h5", "/entry/data");
  }));
}

TEST_F(ProjectionLinksTest, MissingDamagedAndCircularLinksAreRefused) {
  Detector("root/raw/detector.h5", 0, kAngles);
  folder_.Write("root/raw/text.h5", "no HDF5 at all");
  std::filesystem::create_directories(folder_ / "root/raw/folder.h5");
  for (const auto& [file, object, why] :
       {std::tuple{"../raw/none.h5", "/entry/data", "which is missing"},
        {"../raw/detector.h5", "/entry/none", "where there is nothing"},
        {"../raw/text.h5", "/entry/data", "which is no HDF5 file"},
        {"../raw/folder.h5", "/entry/data", "which is no file"}}) {
    IsRefused(Master([&, f = file, o = object](Hdf5Builder& master) {
                master.ExternalLink("/exchange/data", f, o);
              }),
              "/exchange/data", absl::StrCat("'", file, ":", object, "'"), why);
  }
  // Circular links: soft links, through two files, and to itself.
  IsRefused(Master([&](Hdf5Builder& f) {
              f.SoftLink("/exchange/data", "/exchange/again");
              f.SoftLink("/exchange/again", "/exchange/data");
            }),
            "/exchange/", "'/exchange/", "go on and on");
  {
    Hdf5Builder other(folder_ / "root/raw/other.h5");
    other.ExternalLink("/there", "../proc/master.h5", "/exchange/data");
  }
  IsRefused(Master([&](Hdf5Builder& f) {
              f.ExternalLink("/exchange/data", "../raw/other.h5", "/there");
            }),
            "/", "'", "go on and on");
  IsRefused(Master([&](Hdf5Builder& f) {
              f.ExternalLink("/exchange/data", "master.h5", "/exchange/data");
            }),
            "/exchange/data", "'master.h5:/exchange/data'", "go on and on");
}

TEST_F(ProjectionLinksTest, AVirtualDatasetIsReadFromItsFiles) {
  Detector("root/raw/one.h5", 0, 2);
  Detector("root/raw/two.h5", 2, 3);
  const auto add = [](Hdf5Builder& f) {
    f.VirtualData("/exchange/data", {kAngles, kRows, kColumns},
                  {{.file = "../raw/one.h5",
                    .dataset = "/entry/data",
                    .shape = {2, kRows, kColumns},
                    .at = {0, 0, 0}},
                   {.file = "../raw/two.h5",
                    .dataset = "/entry/data",
                    .shape = {3, kRows, kColumns},
                    .at = {2, 0, 0}}});
  };
  IsRead(Master(add));
  EXPECT_EQ(OpenProjections(Master(add), options_).value()->row_granularity(), 2)
      << "the chunks of its files";
  // Behind a link, and with parts of frames in the file itself.
  Master(add, "root/raw/virtual.h5");
  IsRead(Master([&](Hdf5Builder& f) {
    f.ExternalLink("/exchange/data", "../raw/virtual.h5", "/exchange/data");
  }));
  IsRead(Master([&](Hdf5Builder& f) {
    const auto all = Frames<uint16_t>(kAngles, 0);
    std::vector<uint16_t> left, right;
    for (size_t i = 0; i < all.size(); ++i) (i % kColumns < 2 ? left : right).push_back(all[i]);
    f.Data("/left", {kAngles, kRows, 2}, left);
    f.Data("/right", {kAngles, kRows, kColumns - 2}, right);
    f.VirtualData("/exchange/data", {kAngles, kRows, kColumns},
                  {{.file = ".", .dataset = "/left", .shape = {kAngles, kRows, 2}, .at = {0, 0, 0}},
                   {.file = ".",
                    .dataset = "/right",
                    .shape = {kAngles, kRows, kColumns - 2},
                    .at = {0, 0, 2}}});
  }));
  // Virtual datasets as sources.
  IsRead(Master([&](Hdf5Builder& f) {
    f.VirtualData("/exchange/data", {kAngles, kRows, kColumns},
                  {{.file = "../raw/virtual.h5",
                    .dataset = "/exchange/data",
                    .shape = {kAngles, kRows, kColumns},
                    .at = {0, 0, 0}}});
  }));
}

TEST_F(ProjectionLinksTest, VirtualDatasetsThatCannotBeWholeAreRefused) {
  Detector("root/raw/one.h5", 0, kAngles);
  Detector("root/raw/four.h5", 0, 4);
  Detector("outside/one.h5", 0, kAngles);
  const auto of = [&](const std::string& file, const std::string& dataset,
                      hsize_t frames = kAngles) {
    return Master([&](Hdf5Builder& f) {
      f.VirtualData("/exchange/data", {kAngles, kRows, kColumns},
                    {{.file = file,
                      .dataset = dataset,
                      .shape = {frames, kRows, kColumns},
                      .at = {0, 0, 0}}});
    });
  };
  IsRead(of("../raw/one.h5", "/entry/data"));
  IsRefused(of("../../outside/one.h5", "/entry/data"), "/exchange/data",
            "'../../outside/one.h5:/entry/data'", "outside of the configured roots");
  IsRefused(of("../raw/none.h5", "/entry/data"), "/exchange/data", "'../raw/none.h5:/entry/data'",
            "which is missing");
  IsRefused(of("../raw/one.h5", "/entry/none"), "/exchange/data", "'../raw/one.h5:/entry/none'",
            "which is missing");
  IsRefused(of("../raw/four.h5", "/entry/data", 4), "/exchange/data", "have 96 of its 120 values",
            "cover all of it");
  // Parts that together have as many values as the whole, but some places twice and others never.
  Detector("root/raw/three.h5", 0, 3);
  Detector("root/raw/two.h5", 0, 2);
  const auto in_two = [&](hsize_t second) {
    return Master([&](Hdf5Builder& f) {
      f.VirtualData("/exchange/data", {kAngles, kRows, kColumns},
                    {{.file = "../raw/three.h5",
                      .dataset = "/entry/data",
                      .shape = {3, kRows, kColumns},
                      .at = {0, 0, 0}},
                     {.file = "../raw/two.h5",
                      .dataset = "/entry/data",
                      .shape = {2, kRows, kColumns},
                      .at = {second, 0, 0}}});
    });
  };
  IsRefused(in_two(1), "/exchange/data", "is virtual", "values for the same places");
  EXPECT_THAT(OpenProjections(in_two(3), options_), IsOk());
  IsRefused(of(".", "/exchange/data"), "/exchange/data", "is virtual", "go on and on");
  IsRefused(of("../raw/four.h5", "/entry/data"), "/exchange/data", "'../raw/four.h5:/entry/data'",
            "elements that it does not have");
  // A source behind a link that leads outside; the library would follow it.
  {
    Hdf5Builder between(folder_ / "root/raw/between.h5");
    between.ExternalLink("/here", "../../outside/one.h5", "/entry/data");
  }
  IsRefused(of("../raw/between.h5", "/here"), "between.h5:/here",
            "'../../outside/one.h5:/entry/data'", "outside of the configured roots");
  // Without roots the reader opens no other file, but it reads data in the file itself.
  options_.roots.clear();
  IsRefused(of("../raw/one.h5", "/entry/data"), "/exchange/data", "'../raw/one.h5:/entry/data'",
            "no roots are configured");
}

}  // namespace
}  // namespace octavo::storage

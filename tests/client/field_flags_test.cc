// The flags of the command line that set the fields of which the server tells.

#include "client/cpp/cli/field_flags.h"

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "gtest/gtest.h"

namespace octavo::cli {
namespace {

/// What is said of a field by a command with these flags, of which `given` were given.
std::string Said(const std::vector<std::string>& flags, const std::vector<std::string>& given,
                 const std::string& field, const std::string& text) {
  CLI::App app;
  std::string value;
  CLI::App* const command = app.add_subcommand("recon");
  for (const std::string& flag : flags) command->add_option(flag, value);
  std::vector<const char*> words = {"octavo", "recon"};
  for (const std::string& flag : given) words.insert(words.end(), {flag.c_str(), "x"});
  app.parse(static_cast<int>(words.size()), words.data());
  return FlagsFor(&app, field, text);
}

const std::vector<std::string> kFlags = {
    "-o,--output",    "--output-dir", "--codec",    "--series",      "--tile-search",
    "--tile-columns", "--tile-rows",  "--priority", "--group",       "--flats",
    "--degrees",      "--radians",    "--center",   "--stop-change", "--air"};

TEST(FieldFlags, FieldsHaveTheirFlags) {
  const std::pair<const char*, const char*> fields[] = {
      {"tomography.series.projections", " (--series)"},
      {"tomography.series.step", " (--series)"},
      {"tomography.mosaic.search", " (--tile-search)"},
      {"tomography.mosaic.tiles[1].first_column", " (--tile-columns)"},
      {"tomography.mosaic.tiles[12].first_row", " (--tile-rows)"},
      {"tomography.mosaic.tiles[1].file.flats", " (--flats)"},
      {"priority", " (--priority)"},
      {"group", " (--group)"},
      {"options.codec", " (--codec)"},
      {"commit.codec", " (--codec)"},
      {"tomography.reconstruction.stop_change", " (--stop-change)"},
      {"tomography.preparation.phase.energy_kev", ""}};  // no flag of this command
  for (const auto& [field, flag] : fields)
    EXPECT_EQ(Said(kFlags, {}, field, std::string(field) + ": is wrong"), flag) << field;
}

TEST(FieldFlags, OfSeveralFlagsOfAFieldTheGivenOneIsNamed) {
  for (const std::string flag : {"--output", "--output-dir"}) {
    for (const std::string field : {"options.destination", "commit.destination"})
      EXPECT_EQ(Said(kFlags, {flag}, field, field + ": File exists"), " (" + flag + ")");
  }
}

TEST(FieldFlags, FieldsInTheTextAreFound) {
  EXPECT_EQ(Said(kFlags, {}, "", "preparation.air_left is 40, and so on"), " (--air)");
  EXPECT_EQ(Said(kFlags, {}, "tomography.file.angle_unit",
                 "tomography.file.angle_unit: is wrong, and tomography.center.search_method too"),
            " (angle_unit: --degrees, --radians, search_method: --center)");
}

}  // namespace
}  // namespace octavo::cli

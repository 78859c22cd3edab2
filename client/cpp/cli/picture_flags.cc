#include "client/cpp/cli/picture_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "client/cpp/cli/words.h"

namespace octavo::cli {

void PictureFlags::AddContrastTo(CLI::App* command) {
  auto* of_percentiles =
      command
          ->add_option("--percentiles", percentiles,
                       "LO HI or LO,HI: contrast from these percentiles of each picture (default "
                       "1 99.8)")
          ->delimiter(',')
          ->expected(2);
  auto* of_levels =
      command->add_option("--levels", levels, "LO HI or LO,HI: fixed contrast, in value units (dB)")
          ->delimiter(',')
          ->expected(2)
          ->excludes(of_percentiles);
  command
      ->add_flag("--display", display,
                 "the contrast that the scan names, the same for all pictures")
      ->excludes(of_percentiles)
      ->excludes(of_levels);
}

void PictureFlags::AddLookTo(CLI::App* command) {
  const std::vector<std::string> maps = WordsOf<v1::ColourMap>();
  command->add_option("--colour-map", colour_map, Listed(maps))->check(OneOf(maps));
  command->add_option("--max-width", max_width, "shrink to so many pixels across")
      ->check(WholeFrom(1));
  command->add_option("--max-height", max_height, "shrink to so many pixels down")
      ->check(WholeFrom(1));
  command->add_flag("--square-pixels", square_pixels, "the same um per pixel along both axes");
  command->add_flag("--scale-bar", scale_bar, "draw a labelled scale bar");
  command->add_flag("--colour-bar", colour_bar, "add the colours with numbers and their unit");
  command
      ->add_option("--quality", quality,
                   "of JPEG and WebP files, 1 to 100 (default 85; WebP of 100 is exact)")
      ->check(WholeFrom(1, 100));
}

void PictureFlags::Check() const {
  if (percentiles.empty()) return;
  const auto [lo, hi] = std::pair(percentiles[0], percentiles[1]);
  const std::string is = absl::StrCat("is ", lo, " ", hi);
  if (!(lo >= 0 && lo < hi && hi <= 100))
    throw CLI::ValidationError("--percentiles", is + "; allowed 0 <= LO < HI <= 100");
  if (hi > 1) return;
  throw CLI::ValidationError(
      "--percentiles", absl::StrCat(is, ", which look like fractions; percentiles are 0 to 100: ",
                                    100 * lo, " ", 100 * hi, " for these"));
}

void PictureFlags::Fill(v1::ImageOptions* image) const {
  const auto set = [](const std::vector<float>& pair, v1::Levels* out) {
    out->set_lo(pair[0]);
    out->set_hi(pair[1]);
  };
  image->set_depth_down(true);
  if (!colour_map.empty()) image->set_colour_map(ValueOf<v1::ColourMap>(colour_map));
  if (!percentiles.empty()) set(percentiles, image->mutable_percentiles());
  if (!levels.empty()) set(levels, image->mutable_levels());
  image->set_display_levels(display);
  image->set_max_width(max_width);
  image->set_max_height(max_height);
  image->set_square_pixels(square_pixels);
  image->set_scale_bar(scale_bar);
  image->set_colour_bar(colour_bar);
  image->set_quality(quality);
}

}  // namespace octavo::cli

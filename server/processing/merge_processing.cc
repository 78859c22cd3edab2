#include "server/processing/merge_processing.h"

#include <utility>

namespace octavo::processing {
namespace {

using model::Processing;
using Copy = void (*)(const Processing& from, Processing* to);

// Each field of the contract and what it is in the model.
constexpr std::pair<const char*, Copy> kFields[] = {
    {"background",
     [](const Processing& from, Processing* to) {
       to->background = from.background;
       to->background_spectrum = from.background_spectrum;
       to->background_group_records = from.background_group_records;
       to->background_window_records = from.background_window_records;
     }},
    {"k_linearisation",
     [](const Processing& from, Processing* to) {
       to->k_mode = from.k_mode;
       to->k_index = from.k_index;
       to->k_polynomial = from.k_polynomial;
       to->k_wavelength_nm = from.k_wavelength_nm;
       to->k_interpolation = from.k_interpolation;
     }},
    {"window", [](const Processing& from, Processing* to) { to->window = from.window; }},
    {"window_values",
     [](const Processing& from, Processing* to) { to->window_values = from.window_values; }},
    {"dispersion",
     [](const Processing& from, Processing* to) {
       to->dispersion_a2 = from.dispersion_a2;
       to->dispersion_a3 = from.dispersion_a3;
       to->dispersion_phase = from.dispersion_phase;
     }},
    {"fft_length",
     [](const Processing& from, Processing* to) { to->fft_length = from.fft_length; }},
    {"first_bin", [](const Processing& from, Processing* to) { to->first_bin = from.first_bin; }},
    {"depth", [](const Processing& from, Processing* to) { to->depth = from.depth; }},
    {"value", [](const Processing& from, Processing* to) { to->value = from.value; }},
    {"levels",
     [](const Processing& from, Processing* to) {
       to->has_levels = from.has_levels;
       to->level_lo = from.level_lo;
       to->level_hi = from.level_hi;
     }},
    {"dtype",
     [](const Processing& from, Processing* to) {
       to->dtype = from.dtype;
       to->dtype_given = from.dtype_given;
     }},
    {"axial_spacing_um",
     [](const Processing& from, Processing* to) { to->axial_spacing_um = from.axial_spacing_um; }},
    {"refractive_index",
     [](const Processing& from, Processing* to) { to->refractive_index = from.refractive_index; }},
    {"fixed_pattern_noise", [](const Processing& from, Processing* to) {
       to->fixed_pattern_noise = from.fixed_pattern_noise;
     }}};

}  // namespace

const std::vector<std::string>& ProcessingFields() {
  static const auto& names = *[] {
    auto* list = new std::vector<std::string>;
    for (const auto& [name, copy] : kFields) list->emplace_back(name);
    return list;
  }();
  return names;
}

Processing MergeProcessing(const Processing& requested, const Processing& given,
                           const std::set<std::string>& fields) {
  Processing merged = requested;
  for (const auto& [name, copy] : kFields)
    if (fields.contains(name)) copy(given, &merged);
  return merged;
}

}  // namespace octavo::processing

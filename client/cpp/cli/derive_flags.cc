#include "client/cpp/cli/derive_flags.h"

#include "client/cpp/cli/words.h"

namespace octavo::cli {

void DeriveFlags::AddTo(CLI::App* app) {
  app->add_option("--angiography", angiography,
                  "speckle-variance | amplitude-decorrelation: repeats become one")
      ->check(OneOf({"speckle-variance", "amplitude-decorrelation"}));
  auto* of_doppler =
      app->add_option("--doppler", doppler,
                      "repeats | ascans: phase in rad from one to the next (complex volumes)")
          ->check(OneOf({"repeats", "ascans"}));
  app->add_option("--half-window", half_window,
                  "Doppler: depth samples to either side that are summed as well")
      ->needs(of_doppler);
  app->add_option("--cartesian", cartesian, "rows,columns of a regular grid; 0,0 = chosen")
      ->delimiter(',')
      ->expected(2);
}

std::vector<v1::VolumeOperation> DeriveFlags::Operations() const {
  std::vector<v1::VolumeOperation> operations;
  if (!angiography.empty()) {
    operations.emplace_back().mutable_angiography()->set_contrast_method(
        angiography == "speckle-variance" ? v1::Angiography::METHOD_SPECKLE_VARIANCE
                                          : v1::Angiography::METHOD_AMPLITUDE_DECORRELATION);
  }
  if (!doppler.empty()) {
    auto* between = operations.emplace_back().mutable_doppler();
    between->set_between(doppler == "repeats" ? v1::Doppler::BETWEEN_REPEATS
                                              : v1::Doppler::BETWEEN_ASCANS);
    between->set_half_window(half_window);
  }
  if (cartesian.size() == 2) {
    auto* grid = operations.emplace_back().mutable_cartesian();
    grid->set_rows(cartesian[0]);
    grid->set_columns(cartesian[1]);
  }
  return operations;
}

}  // namespace octavo::cli

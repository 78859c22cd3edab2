#include "client/cpp/cli/array_flags.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/cli/projection_text.h"
#include "client/cpp/cli/words.h"

namespace octavo::cli {
namespace {

struct Projection {
  const char* flag;
  v1::ReduceKind kind;
  const char* help;
};
const std::map<std::string, v1::Sampling> kSamplings = {{"nearest", v1::SAMPLING_NEAREST},
                                                        {"linear", v1::SAMPLING_LINEAR},
                                                        {"cubic", v1::SAMPLING_CUBIC}};
constexpr Projection kProjections[] = {
    {"--mip", v1::REDUCE_KIND_MAX,
     "AXIS or AXIS=BEGIN:END: the maximum along an axis, or in a slab"},
    {"--mean", v1::REDUCE_KIND_MEAN, "the same: the mean (AIP)"},
    {"--min", v1::REDUCE_KIND_MIN, "the same: the minimum"},
    {"--std", v1::REDUCE_KIND_STD, "the same: the standard deviation"},
    {"--slab", v1::REDUCE_KIND_MAX, "AXIS=BEGIN:END: as --mip"}};

}  // namespace

ArrayFlags::ArrayFlags(CLI::App* command) {
  given_->projections.resize(std::size(kProjections));
  command
      ->add_option("--crop", given_->crop,
                   "y,x,z,ny,nx,nz: this box, along the volume's axes (tomograms z,y,x); 0 of the "
                   "last three = to the end")
      ->delimiter(',')
      ->expected(6);
  command
      ->add_option("--resize", given_->shape,
                   "y,x,z: so many samples along the volume's axes; 0 = as many as there are")
      ->delimiter(',')
      ->expected(3);
  command
      ->add_option(
          "--affine", given_->affine,
          "9 numbers, a matrix row by row, or 12 with an offset: element i of the result is "
          "the volume's at matrix x i + offset, in samples along its axes; 0 outside")
      ->delimiter(',')
      ->expected(9, 12);
  command
      ->add_option("--sampling", given_->sampling,
                   "nearest | linear | cubic: of --resize and --affine (default: linear)")
      ->check(OneOf(KeysOf(kSamplings)));
  command
      ->add_option("--median", given_->median,
                   "3 | 5: the median of so many samples along each axis")
      ->check(CLI::IsMember({3, 5}));
  command
      ->add_option("--gaussian", given_->gaussian,
                   "SIGMA, or SIGMA,SIGMA,SIGMA along the volume's axes: smooths with a Gaussian, "
                   "in um")
      ->delimiter(',')
      ->expected(1, 3)
      ->check(CLI::NonNegativeNumber);
  command->add_option("--threshold", given_->threshold,
                      "VALUE | otsu: 1 where a voxel is above it, else 0; otsu = where Otsu's "
                      "method divides the voxels into two classes");
  std::vector<CLI::Option*> ways;
  for (size_t i = 0; i < std::size(kProjections); ++i) {
    CLI::Option* const way =
        command->add_option(kProjections[i].flag, given_->projections[i], kProjections[i].help);
    for (CLI::Option* const other : ways) way->excludes(other);
    ways.push_back(way);
  }
}

bool ArrayFlags::Fill(Session& session, v1::DeriveVolumeRequest* request) const {
  if (!given_->crop.empty()) {
    auto* crop = request->add_operations()->mutable_array()->mutable_crop();
    for (size_t i = 0; i < given_->crop.size(); ++i)
      (i < 3 ? crop->add_start(given_->crop[i]) : crop->add_count(given_->crop[i]));
  }
  const v1::Sampling sampling =
      given_->sampling.empty() ? v1::SAMPLING_UNSPECIFIED : kSamplings.at(given_->sampling);
  if (!given_->sampling.empty() && given_->shape.empty() && given_->affine.empty())
    throw CLI::ValidationError("--sampling", "needs --resize or --affine");
  if (!given_->shape.empty()) {
    auto* resize = request->add_operations()->mutable_array()->mutable_resize();
    for (const int64_t samples : given_->shape) resize->add_shape(samples);
    resize->set_sampling(sampling);
  }
  if (!given_->affine.empty()) {
    const size_t count = given_->affine.size();
    if (count != 9 && count != 12)
      throw CLI::ValidationError("--affine",
                                 absl::StrCat("has ", count, " numbers; allowed are 9 and 12"));
    auto* affine = request->add_operations()->mutable_array()->mutable_affine();
    for (size_t i = 0; i < count; ++i)
      (i < 9 ? affine->add_matrix(given_->affine[i]) : affine->add_offset(given_->affine[i]));
    affine->set_sampling(sampling);
  }
  if (given_->median != 0)
    request->add_operations()->mutable_array()->mutable_median()->set_size(given_->median);
  if (!given_->gaussian.empty()) {
    auto* gaussian = request->add_operations()->mutable_array()->mutable_gaussian();
    for (const double sigma : given_->gaussian) gaussian->add_sigma_um(sigma);
  }
  for (size_t i = 0; i < std::size(kProjections); ++i) {
    if (given_->projections[i].empty()) continue;
    const std::string flag = kProjections[i].flag;
    const ProjectionText projection =
        ProjectionOf(flag, given_->projections[i], /*needs_range=*/flag == "--slab");
    v1::GetVolumeRequest get;
    get.set_name(request->name());
    v1::GetVolumeResponse answer;
    if (!CheckVolume(session, request->name(),
                     v1::VolumeService::NewStub(session.channel())
                         ->GetVolume(session.Context().get(), get, &answer)))
      return false;
    const auto& axes = answer.volume().axes();
    const std::string axis = absl::AsciiStrToLower(ShortName(projection.axis));
    const auto found = std::find(axes.begin(), axes.end(), axis);
    if (found == axes.end()) {
      throw CLI::ValidationError(flag, absl::StrCat("has the axis '", axis, "'; the volume has ",
                                                    absl::StrJoin(axes, ", ")));
    }
    auto* slab = request->add_operations()->mutable_array()->mutable_slab();
    slab->set_kind(kProjections[i].kind);
    slab->set_axis(found - axes.begin());
    slab->set_begin(projection.begin);
    slab->set_end(projection.end);
  }
  if (!given_->threshold.empty()) {
    auto* threshold = request->add_operations()->mutable_array()->mutable_threshold();
    double value = 0;
    if (given_->threshold == "otsu") {
      threshold->mutable_otsu();
    } else if (absl::SimpleAtod(given_->threshold, &value)) {
      threshold->set_value(value);
    } else {
      throw CLI::ValidationError(
          "--threshold", absl::StrCat("is '", given_->threshold, "'; allowed a number, or otsu"));
    }
  }
  return true;
}

}  // namespace octavo::cli

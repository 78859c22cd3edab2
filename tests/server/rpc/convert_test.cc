#include "server/rpc/convert/convert.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/message_differencer.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

#include "server/processing/merge_processing.h"
#include "server/rpc/convert/buffer.h"
#include "server/rpc/convert/field_mask.h"
#include "server/rpc/convert/status.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/transport/payload.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using octavo::testing::IsError;
using octavo::testing::IsOk;

/// Sets every field of a message: a field that the conversion forgets shows as a difference.
class Filler {
 public:
  explicit Filler(uint32_t seed) : random_(seed) {}

  void Fill(google::protobuf::Message* message) {
    const auto* descriptor = message->GetDescriptor();
    // One field of each, and always the same one.
    std::map<const google::protobuf::OneofDescriptor*, int> chosen;
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* field = descriptor->field(i);
      if (field->full_name() == "octavo.v1.ScanSpec.chains")
        continue;  // random values are rarely valid: see ChainsSurviveTheRoundTrip
      if (const auto* oneof = field->containing_oneof(); oneof != nullptr) {
        const int choice = chosen.try_emplace(oneof, Below(oneof->field_count())).first->second;
        if (oneof->field(choice) != field) continue;
      }
      const int count = field->is_repeated() ? 1 + Below(3) : 1;
      for (int k = 0; k < count; ++k) Set(message, field, k);
    }
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  double Number() { return static_cast<double>(Below(2000)) / 8 - 60; }  // exact in float

  void Set(google::protobuf::Message* message, const FieldDescriptor* field, int k) {
    const auto* r = message->GetReflection();
    const bool many = field->is_repeated();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (field->is_map()) {
          auto* entry = r->AddMessage(message, field);
          entry->GetReflection()->SetString(entry, entry->GetDescriptor()->map_key(),
                                            "key-" + std::to_string(k));
          entry->GetReflection()->SetString(entry, entry->GetDescriptor()->map_value(),
                                            "value " + std::to_string(Below(99)));
        } else if (field->message_type()->full_name() == "google.protobuf.Duration") {
          auto* duration =
              static_cast<google::protobuf::Duration*>(r->MutableMessage(message, field));
          duration->set_seconds(1 + Below(1000));
          duration->set_nanos(1'000'003 * Below(900));
        } else {
          Fill(many ? r->AddMessage(message, field) : r->MutableMessage(message, field));
        }
        break;
      case FieldDescriptor::CPPTYPE_ENUM: {
        int number =
            field->enum_type()->value(1 + Below(field->enum_type()->value_count() - 1))->number();
        if (field->enum_type()->full_name() == "octavo.v1.Dtype")
          number = (const int[]){v1::DTYPE_U8, v1::DTYPE_U16, v1::DTYPE_F32}[Below(3)];
        many ? r->AddEnumValue(message, field, number) : r->SetEnumValue(message, field, number);
        break;
      }
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string text = "text-" + std::to_string(Below(1000));
        many ? r->AddString(message, field, text) : r->SetString(message, field, text);
        break;
      }
      case FieldDescriptor::CPPTYPE_BOOL:
        many ? r->AddBool(message, field, true) : r->SetBool(message, field, true);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        const double value = field->name() == "pyramid_um" ? 1 + Below(100) : Number();
        many ? r->AddDouble(message, field, value) : r->SetDouble(message, field, value);
        break;
      }
      case FieldDescriptor::CPPTYPE_FLOAT:
        many ? r->AddFloat(message, field, static_cast<float>(Number()))
             : r->SetFloat(message, field, static_cast<float>(Number()));
        break;
      case FieldDescriptor::CPPTYPE_UINT32: {
        const int allowed = field->name() == "pyramid_levels"  ? 16
                            : field->name() == "nifti_version" ? 2
                                                               : 4000;
        const auto value = static_cast<uint32_t>(1 + Below(allowed));
        // [y, x, z] of chunks and shards.
        if (many)
          for (int i = r->FieldSize(*message, field); i < 3; ++i)
            r->AddUInt32(message, field, value);
        else
          r->SetUInt32(message, field, value);
        break;
      }
      case FieldDescriptor::CPPTYPE_UINT64: r->SetUInt64(message, field, random_()); break;
      case FieldDescriptor::CPPTYPE_INT32:
        r->SetInt32(message, field, 1 + Below(field->name() == "level" ? 9 : 19));
        break;
      default: FAIL() << "no way to fill " << field->full_name();
    }
  }

  std::mt19937 random_;
};

TEST(ConvertScan, EveryFieldOfASpecSurvivesTheRoundTrip) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    v1::ScanSpec spec, back;
    Filler(seed).Fill(&spec);
    ASSERT_OK_AND_ASSIGN(const engine::ScanSpec decoded, DecodeScanSpec(spec));
    EncodeScanSpec(decoded, &back);
    for (v1::ScanSpec* each : {&spec, &back}) {  // the same positions, in either precision
      auto* k = each->mutable_processing()->mutable_k_linearisation();
      if (!k->has_index()) continue;
      const auto positions = k->index();
      k->mutable_index_f64()->mutable_values()->Assign(positions.values().begin(),
                                                       positions.values().end());
    }
    google::protobuf::util::MessageDifferencer differencer;
    differencer.set_message_field_comparison(
        google::protobuf::util::MessageDifferencer::EQUIVALENT);
    std::string difference;
    differencer.ReportDifferencesToString(&difference);
    ASSERT_TRUE(differencer.Compare(spec, back)) << "seed " << seed << ": " << difference;
  }
}

// Zero is a value of its own there, and not the default.
TEST(ConvertScan, ZeroIsNotUnset) {
  for (const bool given : {false, true}) {
    v1::ScanSpec spec, back;
    if (given) spec.mutable_simulated()->set_scatterers(0);
    spec.mutable_simulated()->set_seed(1);
    spec.mutable_pattern()->mutable_raster()->set_volumes(1);
    EncodeScanSpec(DecodeScanSpec(spec).value(), &back);
    EXPECT_EQ(back.simulated().has_scatterers(), given);
    if (given) spec.mutable_camera()->set_gain(0);
    spec.mutable_camera()->set_id("a");
    EncodeScanSpec(DecodeScanSpec(spec).value(), &back);
    EXPECT_EQ(back.camera().has_gain(), given);
    v1::JobSpec job;
    job.mutable_k_calibration()->set_volume("volumes/a");
    if (given) job.mutable_k_calibration()->set_edge(0);
    const auto calibration = DecodeJobSpec(job, "client").value();
    EXPECT_EQ(std::get<model::KCalibrationSpec>(calibration.work).edge.has_value(), given);
    job.mutable_dispersion_autofocus()->set_volume("volumes/a");
    if (given) job.mutable_dispersion_autofocus()->set_first_bin(0);
    const auto focus = DecodeJobSpec(job, "client").value();
    EXPECT_EQ(std::get<model::DispersionAutofocusSpec>(focus.work).first_bin.has_value(), given);
  }
}

// By a denormal rate, times and speeds would be infinite.
TEST(ConvertScan, ARateOfAlmostNothingIsRefused) {
  v1::ScanSpec spec;
  spec.mutable_pattern()->mutable_raster();
  for (const double rate : {0.0, 1e-6, 1e9}) {
    spec.mutable_acquisition()->set_record_rate_hz(rate);
    EXPECT_THAT(DecodeScanSpec(spec), IsOk()) << rate;
  }
  for (const double rate : {1e-321, 9e-7}) {
    spec.mutable_acquisition()->set_record_rate_hz(rate);
    const auto refused = DecodeScanSpec(spec);
    EXPECT_THAT(refused, IsError(absl::StatusCode::kInvalidArgument, "allowed 0 or 1e-6 to 1e9"));
    EXPECT_EQ(InfoOf(refused.status()).field, "acquisition.record_rate_hz");
  }
}

TEST(ConvertScan, ChainsSurviveTheRoundTrip) {
  v1::ScanSpec spec, back;
  Filler(3).Fill(&spec);
  auto* chain = spec.add_chains();
  chain->set_name("front");
  auto* crop = chain->add_operations()->mutable_crop();
  for (const int64_t start : {0, 2, 4}) crop->add_start(start);
  for (const int64_t count : {0, 8, 16}) crop->add_count(count);
  auto* reduce = chain->add_operations()->mutable_reduce();
  reduce->set_kind(v1::REDUCE_KIND_MEAN);
  reduce->add_axes(2);
  ASSERT_OK_AND_ASSIGN(const engine::ScanSpec decoded, DecodeScanSpec(spec));
  EncodeScanSpec(decoded, &back);
  ASSERT_EQ(back.chains_size(), 1);
  EXPECT_EQ(back.chains(0).name(), "front");
  ASSERT_EQ(back.chains(0).operations_size(), 2);
  EXPECT_THAT(back.chains(0).operations(0).crop().start(), ::testing::ElementsAre(0, 2, 4));
  EXPECT_THAT(back.chains(0).operations(0).crop().count(), ::testing::ElementsAre(0, 8, 16));
  EXPECT_EQ(back.chains(0).operations(1).reduce().kind(), v1::REDUCE_KIND_MEAN);
  EXPECT_THAT(back.chains(0).operations(1).reduce().axes(), ::testing::ElementsAre(2));
}

TEST(ConvertScan, TheDigestTellsBodiesApart) {
  v1::ScanSpec a;
  Filler(1).Fill(&a);
  v1::ScanSpec same_body = a, other = a;
  (*other.mutable_labels())["key-0"] += "x";
  ASSERT_OK_AND_ASSIGN(const auto digest, DecodeScanSpec(a));
  EXPECT_EQ(DecodeScanSpec(same_body)->request_digest, digest.request_digest);
  EXPECT_NE(DecodeScanSpec(other)->request_digest, digest.request_digest);
}

// A map has no order of its own: a client that sends the same body again may have put in its labels
// in another one.
TEST(Digests, DoNotDependOnTheOrderOfLabels) {
  std::mt19937 random(1);
  std::vector<std::string> keys;
  for (char key = 'a'; key <= 'p'; ++key) keys.emplace_back(1, key);
  std::set<std::string> creates, applies, jobs, scans;
  for (int i = 0; i < 50; ++i) {
    std::shuffle(keys.begin(), keys.end(), random);
    v1::CreateBufferRequest create;
    v1::ApplyOpRequest apply;
    v1::JobSpec job;
    job.mutable_dispersion_autofocus()->set_volume("volumes/a");
    v1::ScanSpec scan;
    Filler(1).Fill(&scan);
    for (const std::string& key : keys) {
      for (auto* labels : {create.mutable_labels(), apply.mutable_labels(), job.mutable_labels(),
                           scan.mutable_labels()})
        (*labels)[key] = "of " + key;
    }
    ASSERT_OK_AND_ASSIGN(const engine::BufferSpec created,
                         DecodeCreate(create, base::DeviceNames(2)));
    creates.insert(created.request_digest);
    ASSERT_OK_AND_ASSIGN(const engine::BufferApplySpec applied, DecodeApply(apply));
    applies.insert(applied.request_digest);
    ASSERT_OK_AND_ASSIGN(const engine::JobSpec submitted, DecodeJobSpec(job, "me"));
    jobs.insert(submitted.request_digest);
    ASSERT_OK_AND_ASSIGN(const engine::ScanSpec scanned, DecodeScanSpec(scan));
    scans.insert(scanned.request_digest);
  }
  EXPECT_EQ(creates.size(), 1u);
  EXPECT_EQ(applies.size(), 1u);
  EXPECT_EQ(jobs.size(), 1u);
  EXPECT_EQ(scans.size(), 1u);
}

TEST(ConvertJob, ACommitIsPartOfTheRequestAndNamesItsFields) {
  v1::JobSpec spec, encoded;
  spec.mutable_reprocess()->set_volume("volumes/a");
  ASSERT_OK_AND_ASSIGN(const engine::JobSpec without, DecodeJobSpec(spec, "me"));
  EXPECT_FALSE(without.commit.has_value());
  EncodeJobSpec(without, &encoded);
  EXPECT_FALSE(encoded.has_commit());
  spec.mutable_commit();
  EXPECT_THAT(DecodeJobSpec(spec, "me"),
              IsError(absl::StatusCode::kInvalidArgument, "commit.destination: is empty"));
  spec.mutable_commit()->set_destination("a.npy");
  spec.mutable_commit()->add_pyramid_um(3);
  ASSERT_OK_AND_ASSIGN(const engine::JobSpec with, DecodeJobSpec(spec, "me"));
  EXPECT_EQ(with.commit->destination, "a.npy");
  EXPECT_NE(with.request_digest, without.request_digest);
  EncodeJobSpec(with, &encoded);
  EXPECT_EQ(encoded.commit().destination(), "a.npy");
  EXPECT_EQ(encoded.commit().format(), v1::FORMAT_NPY);
  EXPECT_EQ(encoded.commit().pyramid_um_size(), 1);
  spec.mutable_commit()->set_zstd_level(20);
  EXPECT_THAT(DecodeJobSpec(spec, "me"),
              IsError(absl::StatusCode::kInvalidArgument, "commit.zstd_level"));
}

TEST(ConvertProjection, HasAllFieldsAndTheirRanges) {
  using Options = v1::TomographyAlgorithmOptions;
  v1::JobSpec spec;
  v1::ProjectionJob& job = *spec.mutable_projection();
  job.set_input("buffers/1");
  const auto decoded = [&]() -> absl::StatusOr<model::ProjectionSpec> {
    OCTAVO_ASSIGN_OR_RETURN(const engine::JobSpec made, DecodeJobSpec(spec, "me"));
    return std::get<model::ProjectionSpec>(made.work);
  };
  ASSERT_OK_AND_ASSIGN(const model::ProjectionSpec plain, decoded());
  EXPECT_FALSE(plain.adjoint);
  EXPECT_EQ(plain.pixel_size, 1);
  EXPECT_EQ(plain.mask_ratio, 0);
  EXPECT_EQ(plain.interpolation, math::RayInterpolation::kLinear);
  EXPECT_EQ(plain.place, model::ResultPlace::kChoose);

  job.set_adjoint(true);
  job.add_angles_rad(0.5);
  job.add_angles_rad(-7);
  job.add_axis_pixels(3.5);
  job.set_columns(9);
  job.set_image_size(8);
  job.set_interpolation(Options::INTERPOLATION_CUBIC);
  job.set_pixel_size(0.25);
  job.set_mask_ratio(0.75);
  job.set_slices_per_batch(4096);
  job.set_place(v1::RESULT_PLACE_DISK);
  ASSERT_OK_AND_ASSIGN(const model::ProjectionSpec full, decoded());
  EXPECT_EQ(full.input, "buffers/1");
  EXPECT_TRUE(full.adjoint);
  EXPECT_EQ(full.angles_rad, (std::vector<double>{0.5, -7}));
  EXPECT_EQ(full.axis_pixels, std::vector<double>{3.5});
  EXPECT_EQ(full.columns, 9);
  EXPECT_EQ(full.image_size, 8);
  EXPECT_EQ(full.interpolation, math::RayInterpolation::kCubic);
  EXPECT_EQ(full.pixel_size, 0.25);
  EXPECT_EQ(full.mask_ratio, 0.75);
  EXPECT_EQ(full.slices_per_batch, 4096);
  EXPECT_EQ(full.place, model::ResultPlace::kDisk);
  EXPECT_NE(full.json.find("\"axis_pixels\""), std::string::npos);
  ASSERT_OK_AND_ASSIGN(const engine::JobSpec whole, DecodeJobSpec(spec, "me"));
  v1::JobSpec encoded;
  EncodeJobSpec(whole, &encoded);
  encoded.clear_group();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(encoded, spec));

  const auto refused = [&](const char* text, const std::function<void(v1::ProjectionJob&)>& with) {
    const v1::ProjectionJob before = job;
    with(job);
    EXPECT_THAT(decoded(), IsError(absl::StatusCode::kInvalidArgument, text));
    job = before;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  refused("projection.input: is empty; allowed is the name of a held volume",
          [](auto& j) { j.clear_input(); });
  refused("projection.angles_rad[1]", [](auto& j) { j.set_angles_rad(1, kNan); });
  refused("projection.axis_pixels[0]", [](auto& j) { j.set_axis_pixels(0, kNan); });
  refused("projection.pixel_size", [](auto& j) { j.set_pixel_size(kNan); });
  refused("projection.mask_ratio", [](auto& j) { j.set_mask_ratio(kNan); });
  refused("projection.slices_per_batch: is 4097; allowed 0 to 4096",
          [](auto& j) { j.set_slices_per_batch(4097); });
  refused("projection.interpolation",
          [](auto& j) { j.set_interpolation(static_cast<Options::Interpolation>(9)); });
  refused("projection.place", [](auto& j) { j.set_place(static_cast<v1::ResultPlace>(9)); });
}

TEST(ConvertTomography, SamplesNeedAWindowThatHoldsSomething) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  v1::JobSpec spec;
  spec.mutable_tomography()->mutable_file()->set_path("scan.h5");
  const auto decoded = [&](v1::Dtype type, double low,
                           double high) -> absl::StatusOr<model::ResultSamplesSpec> {
    auto* samples = spec.mutable_tomography()->mutable_samples();
    samples->set_type(type);
    samples->set_low(low);
    samples->set_high(high);
    OCTAVO_ASSIGN_OR_RETURN(const engine::JobSpec job, DecodeJobSpec(spec, "me"));
    return std::get<model::TomographySpec>(job.work).samples;
  };
  EXPECT_EQ(decoded(v1::DTYPE_UNSPECIFIED, 0, 0)->type, DType::kF32);
  EXPECT_EQ(decoded(v1::DTYPE_F16, 0, 0)->type, DType::kF16);
  EXPECT_TRUE(decoded(v1::DTYPE_U8, 0, 0)->found());
  ASSERT_OK_AND_ASSIGN(const model::ResultSamplesSpec given, decoded(v1::DTYPE_U16, -0.1, 0.3));
  EXPECT_FALSE(given.found());
  EXPECT_EQ(given.low, static_cast<double>(-0.1f)) << "as Volume.levels has it";
  EXPECT_EQ(given.high, static_cast<double>(0.3f));
  EXPECT_FALSE(decoded(v1::DTYPE_U8, -1, 0)->found());
  for (const v1::Dtype other : {v1::DTYPE_I8, v1::DTYPE_I16, v1::DTYPE_F64, v1::DTYPE_C64}) {
    EXPECT_THAT(decoded(other, 0, 0),
                IsError(absl::StatusCode::kInvalidArgument, "tomography.samples.type: is "));
  }
  const auto refused = [&](v1::Dtype type, double low, double high, const char* text) {
    EXPECT_THAT(decoded(type, low, high), IsError(absl::StatusCode::kInvalidArgument, text))
        << low << " to " << high;
  };
  refused(v1::DTYPE_F32, 1, 0, "tomography.samples.low: is 1 with f32");
  refused(v1::DTYPE_UNSPECIFIED, 0, 1, "tomography.samples.high: is 1 with f32");
  refused(v1::DTYPE_F16, 0, 1, "tomography.samples.high: is 1 with f16");
  refused(v1::DTYPE_U8, 1, 1, "tomography.samples.high: is 1 and low is 1; allowed");
  refused(v1::DTYPE_U8, 1, -1, "tomography.samples.high: is -1 and low is 1; allowed");
  refused(v1::DTYPE_U16, 1, 1 + 1e-12, "one number as F32");
  refused(v1::DTYPE_U16, kNan, 1, "tomography.samples.low");
  refused(v1::DTYPE_U16, 0, std::numeric_limits<double>::infinity(), "tomography.samples.high");
  refused(v1::DTYPE_U16, -1e39, 1, "tomography.samples.low");
}

TEST(ConvertJob, ThePreparationOfTomographyIsTakenOver) {
  v1::JobSpec spec;
  spec.mutable_tomography()->mutable_file()->set_path("a.npy");
  auto* preparation = spec.mutable_tomography()->mutable_preparation();
  using Phase = v1::TomographyPreparation::Phase;
  const auto decoded = [&]() -> absl::StatusOr<PrepareConfig> {
    OCTAVO_ASSIGN_OR_RETURN(const engine::JobSpec job, DecodeJobSpec(spec, "me"));
    return std::get<model::TomographySpec>(job.work).preparation.config;
  };
  preparation->mutable_phase()->set_delta_beta(9);
  for (const auto& [method, wanted] :
       {std::pair{Phase::METHOD_UNSPECIFIED, PhaseMethod::kPaganin},
        std::pair{Phase::METHOD_PAGANIN, PhaseMethod::kPaganin},
        std::pair{Phase::METHOD_GENERALIZED_PAGANIN, PhaseMethod::kGeneralized},
        std::pair{Phase::METHOD_FARAGO, PhaseMethod::kFarago}}) {
    preparation->mutable_phase()->set_retrieval_method(method);
    EXPECT_EQ(decoded()->phase.method, wanted);
  }
  preparation->mutable_phase()->set_retrieval_method(static_cast<Phase::Method>(7));
  EXPECT_THAT(decoded(), IsError(absl::StatusCode::kInvalidArgument,
                                 "tomography.preparation.phase.retrieval_method: "));
  preparation->clear_phase();
  preparation->add_beam_hardening(1);
  preparation->add_beam_hardening(0.5);
  EXPECT_EQ(decoded()->beam_hardening, (std::vector<double>{1, 0.5}));
  preparation->set_logarithm(false);
  EXPECT_THAT(decoded(), IsError(absl::StatusCode::kInvalidArgument,
                                 "tomography.preparation.beam_hardening: "));
  preparation->set_already_sinograms(true);
  EXPECT_THAT(decoded(), IsOk());
}

TEST(ConvertJob, TheRawTypeOfPushedFrames) {
  const auto decoded = [](v1::Dtype dtype,
                          v1::RawType raw) -> absl::StatusOr<model::PushedProjectionsSpec> {
    v1::JobSpec spec;
    auto* push = spec.mutable_tomography()->mutable_push();
    push->set_rows(4);
    push->set_columns(33);
    push->set_frames(40);
    push->set_dtype(dtype);
    push->set_raw_type(raw);
    OCTAVO_ASSIGN_OR_RETURN(const engine::JobSpec job, DecodeJobSpec(spec, "me"));
    return std::get<model::PushedProjectionsSpec>(std::get<model::TomographySpec>(job.work).input);
  };
  struct Case {
    v1::RawType raw;
    v1::Dtype pixels;
    math::Packing packing;
    int64_t row_bytes;
  };
  const Case cases[] = {{v1::RAW_TYPE_U8, v1::DTYPE_U8, math::Packing::kNone, 33},
                        {v1::RAW_TYPE_U16, v1::DTYPE_U16, math::Packing::kNone, 66},
                        {v1::RAW_TYPE_I16, v1::DTYPE_I16, math::Packing::kNone, 66},
                        {v1::RAW_TYPE_F32, v1::DTYPE_F32, math::Packing::kNone, 132},
                        {v1::RAW_TYPE_U12P, v1::DTYPE_U16, math::Packing::kLowFirst12, 50},
                        {v1::RAW_TYPE_U12_PACKED, v1::DTYPE_U16, math::Packing::kHighFirst12, 50}};
  static_assert(std::size(cases) + 1 == v1::RawType_ARRAYSIZE);
  for (const Case& one : cases) {
    SCOPED_TRACE(v1::RawType_Name(one.raw));
    for (const v1::Dtype dtype : {v1::DTYPE_UNSPECIFIED, one.pixels}) {
      ASSERT_OK_AND_ASSIGN(const model::PushedProjectionsSpec push, decoded(dtype, one.raw));
      EXPECT_EQ(push.dtype, static_cast<DType>(one.pixels));
      EXPECT_EQ(push.packing, one.packing);
      EXPECT_EQ(push.row_bytes(), one.row_bytes);
      EXPECT_EQ(push.frame_bytes(), 4 * one.row_bytes);
    }
    for (const v1::Dtype other : {v1::DTYPE_U8, v1::DTYPE_U16, v1::DTYPE_I16, v1::DTYPE_F32}) {
      if (other == one.pixels) continue;
      EXPECT_THAT(decoded(other, one.raw),
                  IsError(absl::StatusCode::kInvalidArgument, "tomography.push.raw_type: is "));
      EXPECT_EQ(InfoOf(decoded(other, one.raw).status()).field, "tomography.push.raw_type");
    }
  }
  EXPECT_EQ(decoded(v1::DTYPE_I16, v1::RAW_TYPE_UNSPECIFIED)->dtype, DType::kI16);
  EXPECT_EQ(decoded(v1::DTYPE_UNSPECIFIED, v1::RAW_TYPE_UNSPECIFIED)->dtype, DType::kU16);
  EXPECT_THAT(decoded(v1::DTYPE_UNSPECIFIED, static_cast<v1::RawType>(7)),
              IsError(absl::StatusCode::kInvalidArgument, "tomography.push.raw_type"));
}

TEST(ConvertJob, DynamicFlatsAndWhatTheyExclude) {
  v1::JobSpec spec;
  spec.mutable_tomography()->mutable_file()->set_path("a.npy");
  auto* preparation = spec.mutable_tomography()->mutable_preparation();
  const auto decoded = [&]() -> absl::StatusOr<model::PreparationSpec> {
    OCTAVO_ASSIGN_OR_RETURN(const engine::JobSpec job, DecodeJobSpec(spec, "me"));
    return std::get<model::TomographySpec>(job.work).preparation;
  };
  EXPECT_FALSE(decoded()->dynamic_flats);
  preparation->mutable_dynamic_flats();
  EXPECT_TRUE(decoded()->dynamic_flats);
  EXPECT_EQ(decoded()->flat_components, 0);
  preparation->mutable_dynamic_flats()->set_components(8);
  EXPECT_EQ(decoded()->flat_components, 8);
  preparation->mutable_dynamic_flats()->set_components(9);
  EXPECT_THAT(decoded(), IsError(absl::StatusCode::kInvalidArgument,
                                 "tomography.preparation.dynamic_flats.components: "));
  preparation->mutable_dynamic_flats()->set_components(3);
  using P = v1::TomographyPreparation;
  for (const auto set : {&P::set_already_sinograms, &P::set_ignore_fields, &P::set_flat_median,
                         &P::set_flats_in_time}) {
    (preparation->*set)(true);
    EXPECT_THAT(decoded(), IsError(absl::StatusCode::kInvalidArgument,
                                   "tomography.preparation.dynamic_flats: "));
    (preparation->*set)(false);
  }
  EXPECT_THAT(decoded(), IsOk());
}

TEST(ConvertJob, ShiftsAlongTheAxisAreFoundOrGiven) {
  v1::JobSpec spec;
  spec.mutable_tomography()->mutable_file()->set_path("a.npy");
  auto* preparation = spec.mutable_tomography()->mutable_preparation();
  const auto decoded = [&]() -> absl::StatusOr<model::PreparationSpec> {
    OCTAVO_ASSIGN_OR_RETURN(const engine::JobSpec job, DecodeJobSpec(spec, "me"));
    return std::get<model::TomographySpec>(job.work).preparation;
  };
  const auto refused = [&](const char* text) {
    EXPECT_THAT(decoded(), IsError(absl::StatusCode::kInvalidArgument, text));
  };
  EXPECT_FALSE(decoded()->finds_drift);
  EXPECT_EQ(decoded()->config.shifts.most, 0);
  preparation->mutable_row_drift();
  EXPECT_TRUE(decoded()->finds_drift);
  EXPECT_EQ(decoded()->config.shifts.most, 5);
  preparation->mutable_row_drift()->set_most_rows(12.5);
  EXPECT_EQ(decoded()->config.shifts.most, 12.5);
  for (const double wrong : {-0.1, 64.5, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    preparation->mutable_row_drift()->set_most_rows(wrong);
    refused("tomography.preparation.row_drift.most_rows: ");
  }
  preparation->mutable_row_drift()->set_most_rows(3);
  preparation->set_logarithm(false);
  refused("tomography.preparation.row_drift: ");
  preparation->set_already_sinograms(true);
  EXPECT_THAT(decoded(), IsOk());
  preparation->add_row_shifts(-1.5);
  refused("tomography.preparation.row_drift: ");
  preparation->clear_row_drift();
  EXPECT_EQ(decoded()->row_shifts, std::vector<double>{-1.5});
  preparation->add_row_shifts(64.1);
  refused("tomography.preparation.row_shifts[1]: ");
}

TEST(ConvertJob, TotalVariationHasAWeightAndItsUsualIterations) {
  v1::JobSpec spec;
  spec.mutable_tomography()->mutable_file()->set_path("a.npy");
  auto* options = spec.mutable_tomography()->mutable_reconstruction();
  options->set_algorithm(v1::TomographyAlgorithmOptions::ALGORITHM_TV);
  options->set_tv_weight(0.25);
  const auto decoded = [&]() -> absl::StatusOr<TomographyConfig> {
    OCTAVO_ASSIGN_OR_RETURN(const engine::JobSpec job, DecodeJobSpec(spec, "me"));
    return std::get<model::TomographySpec>(job.work).reconstruction;
  };
  EXPECT_EQ(decoded()->algorithm, TomographyAlgorithm::kTv);
  EXPECT_EQ(decoded()->tv_weight, 0.25);
  EXPECT_EQ(decoded()->iterations, 200);
  options->set_tv_weight(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(decoded(), IsError(absl::StatusCode::kInvalidArgument, "tv_weight"));
}

TEST(ConvertJob, SinogramsHaveNothingOfWhatMakesSlices) {
  const auto decoded = [](const std::function<void(v1::TomographyJob&)>& change) {
    v1::JobSpec spec;
    auto* job = spec.mutable_tomography();
    job->mutable_file()->set_path("a.npy");
    job->set_output(v1::TOMOGRAPHY_OUTPUT_SINOGRAMS);
    change(*job);
    return DecodeJobSpec(spec, "me");
  };
  ASSERT_OK_AND_ASSIGN(const engine::JobSpec job, decoded([](auto& j) {
                         j.mutable_center()->set_search_method(v1::RotationCenter::METHOD_AUTO);
                       }));
  EXPECT_TRUE(std::get<model::TomographySpec>(job.work).makes_sinograms());
  ASSERT_OK_AND_ASSIGN(const engine::JobSpec slices, decoded([](auto& j) {
                         j.set_output(v1::TOMOGRAPHY_OUTPUT_UNSPECIFIED);
                         j.mutable_reconstruction();
                       }));
  EXPECT_FALSE(std::get<model::TomographySpec>(slices.work).makes_sinograms());
  const auto refused = [&](const char* field,
                           const std::function<void(v1::TomographyJob&)>& change) {
    EXPECT_THAT(decoded(change), IsError(absl::StatusCode::kInvalidArgument, field));
  };
  refused("tomography.reconstruction: ", [](auto& j) { j.mutable_reconstruction(); });
  refused("tomography.try_centers: ", [](auto& j) {
    j.mutable_try_centers()->set_end(2);
    j.mutable_try_centers()->set_step(1);
  });
  refused("tomography.initial_volume: ", [](auto& j) { j.set_initial_volume("volumes/a"); });
  refused("tomography.center.pixels: ", [](auto& j) { j.mutable_center()->add_pixels(4); });
  refused("tomography.output: ",
          [](auto& j) { j.set_output(static_cast<v1::TomographyOutput>(9)); });
}

TEST(ConvertJob, ASeriesOfVolumesHasProjectionsAndAStep) {
  const auto decoded = [](uint32_t projections, uint32_t step, bool tries = false) {
    v1::JobSpec spec;
    v1::TomographyJob& job = *spec.mutable_tomography();
    job.mutable_file()->set_path("tooth.h5");
    job.mutable_series()->set_projections(projections);
    job.mutable_series()->set_step(step);
    if (tries) job.mutable_try_centers()->set_step(1);
    return DecodeJobSpec(spec, "me");
  };
  ASSERT_OK_AND_ASSIGN(const engine::JobSpec job, decoded(65535, 4294967295));
  const auto& spec = std::get<model::TomographySpec>(job.work);
  ASSERT_TRUE(spec.series.has_value());
  EXPECT_EQ(spec.series->projections, 65535);
  EXPECT_EQ(spec.series->step, 4294967295);
  EXPECT_THAT(decoded(0, 1), IsError(absl::StatusCode::kInvalidArgument,
                                     "tomography.series.projections: is 0; allowed 1 to 65535"));
  EXPECT_THAT(decoded(65536, 1), IsError(absl::StatusCode::kInvalidArgument,
                                         "tomography.series.projections: is 65536"));
  EXPECT_THAT(decoded(9, 0), IsError(absl::StatusCode::kInvalidArgument,
                                     "tomography.series.step: is 0; allowed 1 to 4294967295"));
  EXPECT_THAT(decoded(9, 1, /*tries=*/true),
              IsError(absl::StatusCode::kInvalidArgument, "tomography.try_centers"));
}

TEST(ConvertJob, AHalfTurnNeedsTheWholeScanAndItsAngles) {
  const auto decoded = [](v1::HalfTurn half,
                          const std::function<void(v1::TomographyJob&)>& change = {}) {
    v1::JobSpec spec;
    v1::TomographyJob& job = *spec.mutable_tomography();
    job.mutable_file()->set_path("tooth.h5");
    job.set_half_turn(half);
    if (change) change(job);
    return DecodeJobSpec(spec, "me");
  };
  const auto taken = [](const absl::StatusOr<engine::JobSpec>& job) {
    return std::get<model::TomographySpec>(job.value().work).takes_half_turn();
  };
  EXPECT_FALSE(taken(decoded(v1::HALF_TURN_UNSPECIFIED)));
  EXPECT_FALSE(taken(decoded(v1::HALF_TURN_ALL)));
  for (const auto half : {v1::HALF_TURN_FIRST, v1::HALF_TURN_SECOND, v1::HALF_TURN_BEST})
    EXPECT_TRUE(taken(decoded(half)));
  const auto push = [](auto& job) {
    job.mutable_push()->set_rows(4);
    job.mutable_push()->set_columns(32);
    job.mutable_push()->set_frames(40);
  };
  const auto stitching = [](auto& job) { job.mutable_preparation()->mutable_stitching(); };
  const auto series = [](auto& job) {
    job.mutable_series()->set_projections(9);
    job.mutable_series()->set_step(9);
  };
  const auto no_logarithm = [](auto& job) { job.mutable_preparation()->set_logarithm(false); };
  for (const auto half : {v1::HALF_TURN_FIRST, v1::HALF_TURN_SECOND, v1::HALF_TURN_BEST}) {
    for (const auto& [change, why] :
         {std::pair<std::function<void(v1::TomographyJob&)>, const char*>(
              stitching, " with preparation.stitching, "),
          {series, " with series, "}}) {
      EXPECT_THAT(decoded(half, change),
                  IsError(absl::StatusCode::kInvalidArgument,
                          absl::StrCat("tomography.half_turn: is ",
                                       v1::HalfTurn_Name(half).substr(10), why)));
    }
  }
  for (const auto& fine : {std::function<void(v1::TomographyJob&)>(push), {stitching}, {series}})
    EXPECT_THAT(decoded(v1::HALF_TURN_ALL, fine), IsOk());
  for (const auto half : {v1::HALF_TURN_FIRST, v1::HALF_TURN_SECOND, v1::HALF_TURN_BEST})
    EXPECT_TRUE(taken(decoded(half, push)));
  EXPECT_TRUE(taken(decoded(v1::HALF_TURN_FIRST, no_logarithm)));
  EXPECT_THAT(decoded(v1::HALF_TURN_BEST, no_logarithm),
              IsError(absl::StatusCode::kInvalidArgument,
                      "tomography.half_turn: is BEST with preparation.logarithm = false"));
  EXPECT_TRUE(taken(decoded(v1::HALF_TURN_BEST, [&](auto& job) {
    no_logarithm(job);
    job.mutable_preparation()->set_already_sinograms(true);
  })));
  EXPECT_THAT(
      decoded(static_cast<v1::HalfTurn>(9)),
      IsError(absl::StatusCode::kInvalidArgument, "tomography.half_turn: has the unknown value 9"));
}

TEST(ConvertJob, TheTierOfItsResultsIsPartOfTheRequest) {
  v1::JobSpec spec;
  spec.mutable_reprocess()->set_volume("volumes/a");
  std::set<std::string> digests;
  for (const v1::Tier tier : {v1::TIER_UNSPECIFIED, v1::TIER_HOST, v1::TIER_DISK}) {
    spec.set_results(tier);
    ASSERT_OK_AND_ASSIGN(const engine::JobSpec decoded, DecodeJobSpec(spec, "me"));
    EXPECT_EQ(decoded.results.has_value(), tier != v1::TIER_UNSPECIFIED);
    digests.insert(decoded.request_digest);
    v1::JobSpec encoded;
    EncodeJobSpec(decoded, &encoded);
    EXPECT_EQ(encoded.results(), tier);
  }
  EXPECT_EQ(digests.size(), 3u);
  spec.set_results(v1::TIER_DEVICE);
  EXPECT_FALSE(DecodeJobSpec(spec, "me")->results.has_value()) << "they stay there anyway";
  spec.set_results(static_cast<v1::Tier>(9));
  EXPECT_THAT(DecodeJobSpec(spec, "me"), IsError(absl::StatusCode::kInvalidArgument, "results"));
}

TEST(ConvertScan, WhatNeedsNoEngineIsCheckedHereByName) {
  v1::ScanSpec good;
  Filler(2).Fill(&good);
  const std::vector<std::pair<const char*, std::function<void(v1::ScanSpec&)>>> bad = {
      {"title", [](auto& s) { s.set_title(std::string(257, 'x')); }},
      {"labels", [](auto& s) { (*s.mutable_labels())["Not a key"] = "v"; }},
      {"labels", [](auto& s) { (*s.mutable_labels())["k"] = std::string(257, 'x'); }},
      {"labels",
       [](auto& s) {
         for (int i = 0; i < 65; ++i) (*s.mutable_labels())[absl::StrCat("k", i)] = "v";
       }},
      {"subject.note", [](auto& s) { s.mutable_subject()->set_note(std::string(4097, 'x')); }},
      {"simulated.bandwidth_nm", [](auto& s) { s.mutable_simulated()->set_bandwidth_nm(NAN); }},
      {"replay.rate_hz", [](auto& s) { s.mutable_replay()->set_rate_hz(INFINITY); }},
      {"acquisition.raw_type",
       [](auto& s) { s.mutable_acquisition()->set_raw_type(static_cast<v1::RawType>(99)); }},
      {"pattern", [](auto& s) { s.clear_pattern(); }},
      {"pattern.raster.extent_x_mm",
       [](auto& s) { s.mutable_pattern()->mutable_raster()->set_extent_x_mm(NAN); }},
      {"processing.background.mode",
       [](auto& s) {
         s.mutable_processing()->mutable_background()->set_mode(
             static_cast<v1::Processing::Background::Mode>(9));
       }},
      {"processing.value",
       [](auto& s) { s.mutable_processing()->set_value(static_cast<v1::Value>(-1)); }},
      {"processing.levels.hi",
       [](auto& s) { s.mutable_processing()->mutable_levels()->set_hi(NAN); }},
      {"processing.dtype", [](auto& s) { s.mutable_processing()->set_dtype(v1::DTYPE_F64); }},
      {"retention.mode",
       [](auto& s) { s.mutable_retention()->set_mode(static_cast<v1::RetentionMode>(7)); }},
      {"retention.auto_commit.chunk",
       [](auto& s) { s.mutable_retention()->mutable_auto_commit()->add_chunk(1); }},
      {"retention.auto_commit.format",
       [](auto& s) {
         s.mutable_retention()->mutable_auto_commit()->set_format(static_cast<v1::Format>(99));
       }},
      {"retention.auto_commit.codec",
       [](auto& s) {
         s.mutable_retention()->mutable_auto_commit()->set_codec(static_cast<v1::Codec>(99));
       }},
      {"retention.auto_commit.shuffle",
       [](auto& s) {
         s.mutable_retention()->mutable_auto_commit()->set_shuffle(static_cast<v1::Shuffle>(4));
       }},
      {"retention.auto_commit.level",
       [](auto& s) { s.mutable_retention()->mutable_auto_commit()->set_level(10); }},
      {"retention.auto_commit.pyramid_levels",
       [](auto& s) { s.mutable_retention()->mutable_auto_commit()->set_pyramid_levels(17); }},
      {"retention.auto_commit.pyramid_um[1]",
       [](auto& s) {
         s.mutable_retention()->mutable_auto_commit()->clear_pyramid_um();
         s.mutable_retention()->mutable_auto_commit()->add_pyramid_um(10);
         s.mutable_retention()->mutable_auto_commit()->add_pyramid_um(NAN);
       }},
      {"retention.auto_commit.ngff",
       [](auto& s) {
         s.mutable_retention()->mutable_auto_commit()->set_ngff(static_cast<v1::NgffVersion>(3));
       }},
      {"retention.auto_commit.nifti_version",
       [](auto& s) { s.mutable_retention()->mutable_auto_commit()->set_nifti_version(3); }},
      {"overrun", [](auto& s) { s.set_overrun(static_cast<v1::Overrun>(5)); }},
      {"on_restart", [](auto& s) { s.set_on_restart(static_cast<v1::OnRestart>(3)); }},
  };
  for (const auto& [field, change] : bad) {
    v1::ScanSpec spec = good;
    change(spec);
    EXPECT_THAT(DecodeScanSpec(spec), IsError(absl::StatusCode::kInvalidArgument, field)) << field;
  }
}

// A message sent by reference parses as the message that protobuf itself would have written.
TEST(Payload, IsTheSameMessageAndLetsGoOfItsOwner) {
  for (const int64_t size :
       {int64_t{0}, int64_t{1}, int64_t{127}, int64_t{128}, int64_t{100'000}, int64_t{3'000'000}}) {
    auto memory = std::make_shared<std::string>(static_cast<size_t>(size) + 5, 'x');
    for (size_t i = 0; i < memory->size(); ++i) (*memory)[i] = static_cast<char>(i * 7);
    v1::SubscribeResponse header;
    header.mutable_frame()->set_parent("scans/a");
    header.set_total_bytes(size);
    {
      grpc::ByteBuffer buffer =
          WithPayload(header, v1::SubscribeResponse::kDataFieldNumber,
                      {.owner = memory, .data = memory->data(), .size = size + 5}, 5, size);
      v1::SubscribeResponse parsed;
      ASSERT_TRUE(ParseRequest(buffer, &parsed));
      v1::SubscribeResponse wanted = header;
      wanted.set_data(memory->substr(5));
      EXPECT_EQ(parsed.SerializeAsString(), wanted.SerializeAsString());
      if (size > 0) EXPECT_GT(memory.use_count(), 1) << "by reference";
    }
    EXPECT_EQ(memory.use_count(), 1) << size;
  }
}

TEST(ConvertTime, DurationsAreExactToTheNanosecond) {
  for (const double seconds : {0.0, 1e-9, 0.1, 0.999999999, 1.0, 59.5, -2.25, 86400.000000001}) {
    const auto duration = ToDuration(seconds);
    EXPECT_THAT(CheckDuration("ttl", duration), IsOk());
    EXPECT_NEAR(ToSeconds(duration), seconds, 5e-10);
    EXPECT_TRUE(duration.seconds() == 0 || duration.nanos() == 0 ||
                (duration.seconds() > 0) == (duration.nanos() > 0));
  }
  for (const auto& [seconds, nanos] : {std::pair<int64_t, int32_t>(2, -1),
                                       {-2, 1},
                                       {0, 1'000'000'000},
                                       {0, -1'000'000'000},
                                       {315'576'000'001, 0},
                                       {std::numeric_limits<int64_t>::min(), 0},
                                       {std::numeric_limits<int64_t>::max(), 999'999'999}}) {
    google::protobuf::Duration wrong;
    wrong.set_seconds(seconds);
    wrong.set_nanos(nanos);
    EXPECT_THAT(CheckDuration("ttl", wrong), IsError(absl::StatusCode::kInvalidArgument, "ttl"));
  }
  EXPECT_EQ(WallTime({.monotonic_ns = 5, .unix_ns = 1'795'248'000'000'000'005}).nanos(), 5);
}

TEST(ConvertFieldMask, NamesWhatChanges) {
  const auto fields = [](const std::vector<std::string>& paths) {
    google::protobuf::FieldMask mask;
    for (const auto& path : paths) mask.add_paths(path);
    return FieldsOfMask(mask, {"labels", "ttl"});
  };
  EXPECT_THAT(*fields({"ttl"}), ::testing::ElementsAre("ttl"));
  EXPECT_THAT(*fields({"ttl", "labels", "ttl"}), ::testing::ElementsAre("labels", "ttl"));
  EXPECT_THAT(*fields({"*"}), ::testing::ElementsAre("labels", "ttl"));
  const std::vector<std::vector<std::string>> wrong = {
      {}, {""}, {"."}, {"label"}, {"labels.x"}, {"*", "ttl"}, {"ttl", "name"}};
  for (const auto& paths : wrong)
    EXPECT_THAT(fields(paths).status(), IsError(absl::StatusCode::kInvalidArgument, "allowed"));
}

TEST(ToGrpc, CarriesTheDetailAndTheReport) {
  const absl::Status status =
      WithInfo(absl::ResourceExhaustedError("full"),
               {.reason = Reason::kDeviceFull, .field = "retention", .numbers = {{"wanted", "7"}}});
  engine::AdmissionReport report;
  report.device = "devices/0";
  report.wanted_bytes = 7;
  const grpc::Status out = ToGrpc(status, &report);
  EXPECT_EQ(out.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(out.error_message(), "full");
  google::rpc::Status rich;
  ASSERT_TRUE(rich.ParseFromString(out.error_details()));
  ASSERT_EQ(rich.details_size(), 4);
  google::rpc::ErrorInfo detail;
  ASSERT_TRUE(rich.details(0).UnpackTo(&detail));
  EXPECT_EQ(detail.reason(), "DEVICE_FULL");
  EXPECT_EQ(detail.metadata().at("field"), "retention");
  EXPECT_EQ(detail.metadata().at("wanted"), "7");
  v1::AdmissionReport encoded;
  google::rpc::QuotaFailure quota;
  ASSERT_TRUE(rich.details(1).UnpackTo(&quota));
  EXPECT_EQ(quota.violations(0).description(), "full");
  ASSERT_TRUE(rich.details(3).UnpackTo(&encoded)) << "behind RetryInfo: this may fit later";
  EXPECT_EQ(encoded.wanted_bytes(), 7);
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
}

TEST(ToGrpc, NamesTheFieldAndSaysWhetherToTryAgain) {
  const auto details = [](const absl::Status& status) {
    google::rpc::Status rich;
    EXPECT_TRUE(rich.ParseFromString(ToGrpc(status).error_details()));
    return rich;
  };
  google::rpc::BadRequest bad;
  google::rpc::RetryInfo retry;
  const auto wrong = details(InvalidField("pattern.raster.volumes", "is -1; allowed >= 0"));
  ASSERT_EQ(wrong.details_size(), 2);
  ASSERT_TRUE(wrong.details(1).UnpackTo(&bad));
  EXPECT_EQ(bad.field_violations(0).field(), "pattern.raster.volumes");
  EXPECT_THAT(bad.field_violations(0).description(), ::testing::HasSubstr("allowed >= 0"));
  const auto with = [](const char* retryable) {
    return WithInfo(
        absl::UnavailableError("draining"),
        {.reason = Reason::kDraining, .field = "", .numbers = {{"retryable", retryable}}});
  };
  const auto later = details(with("true"));
  ASSERT_EQ(later.details_size(), 2);
  ASSERT_TRUE(later.details(1).UnpackTo(&retry));
  EXPECT_GE(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(details(with("false")).details_size(), 1);
  EXPECT_EQ(details(absl::NotFoundError("x")).details_size(), 1) << "ErrorInfo always";
  // Calls that may be refused for memory pass a report, which is filled for that reason only.
  engine::AdmissionReport unfilled;
  google::rpc::Status never;
  ASSERT_TRUE(never.ParseFromString(
      ToGrpc(WithInfo(
                 absl::ResourceExhaustedError("too large"),
                 {.reason = Reason::kHostMemory, .field = "", .numbers = {{"retryable", "false"}}}),
             &unfilled)
          .error_details()));
  EXPECT_EQ(never.details_size(), 2) << "ErrorInfo and QuotaFailure";
}

// A message that quotes a file may contain any bytes; a client refuses the whole message for one
// byte that is not UTF-8.
TEST(ToGrpc, IsUtf8WhateverItQuotes) {
  const std::string bad = "caf\xE9 \xC3\xA9", good = "caf\xEF\xBF\xBD \xC3\xA9";
  std::string cut;  // the cut falls inside a character, wherever it is
  while (cut.size() < 3000) cut += "\xC3\xA9";
  for (const char* shift : {"", "x"}) {
    const grpc::Status out =
        ToGrpc(WithInfo(absl::InvalidArgumentError(shift + cut),
                        {.reason = Reason::kBadField, .field = bad, .numbers = {{"value", bad}}}));
    google::rpc::Status rich;
    ASSERT_TRUE(rich.ParseFromString(out.error_details()));
    google::rpc::ErrorInfo detail;
    ASSERT_TRUE(rich.details(0).UnpackTo(&detail));
    EXPECT_EQ(detail.metadata().at("field"), good);
    EXPECT_EQ(detail.metadata().at("value"), good);
  }
  EXPECT_EQ(ToGrpc(absl::NotFoundError(bad)).error_message(), good);
  engine::JobStatus job;
  job.reason = job.plan = bad;
  job.log.push_back(
      {.seconds = 0, .text = bad + "\xF0\x9F\x98\x80 \xED\xA0\x80 \xC0\xAF \xE2\x82"});
  v1::Job message, read;
  EncodeJob(job, /*brief=*/false, &message);
  ASSERT_TRUE(read.ParseFromString(message.SerializeAsString()));
  EXPECT_EQ(read.reason(), good);
  EXPECT_EQ(read.plan(), good);
  engine::ScanStatus scan;
  scan.reason = scan.plan = bad;
  scan.events.emplace_back().text = bad;
  v1::Scan scan_read, scan_message;
  EncodeScan(scan, &scan_message);
  EXPECT_TRUE(scan_read.ParseFromString(scan_message.SerializeAsString()));
  EXPECT_EQ(scan_read.reason(), good);
  EXPECT_EQ(scan_read.plan(), good);
  engine::MemoryStatus memory;
  memory.devices.emplace_back().reason = bad;
  memory.tiers.emplace_back().path = bad;
  v1::GetMemoryResponse memory_read, memory_message;
  EncodeMemory(memory, &memory_message);
  EXPECT_TRUE(memory_read.ParseFromString(memory_message.SerializeAsString()));
  storage::CommitOutcome outcome;
  outcome.path = bad;
  v1::CommitResult result;
  EncodeCommitResult(outcome, &result);
  EXPECT_EQ(result.path(), good);
  const std::string no = "\xEF\xBF\xBD";
  EXPECT_EQ(read.log_lines(0).text(),
            good + "\xF0\x9F\x98\x80 " + no + no + no + " " + no + no + " " + no + no);
}

// Whatever bytes a message quotes, the trailers of an error are below the 8 KiB that clients take.
// The message travels percent-encoded, the details in base64.
TEST(ToGrpc, NoQuotedBytesHideTheError) {
  const auto on_the_wire = [](const grpc::Status& status) {
    size_t bytes = status.error_details().size() * 4 / 3;
    for (const char c : status.error_message()) bytes += c >= 0x20 && c < 0x7F && c != '%' ? 1 : 3;
    return bytes;
  };
  for (const char* quoted : {"\x01", "\xFF", "x", "'", "\n", "\xC3\xA4", "\xF0\x9F\x98\x80", "%"}) {
    for (const size_t size : {100, 800, 1500, 3900, 100'000}) {
      std::string text = "state.\"";
      while (text.size() < size) text += quoted;
      const grpc::Status out =
          ToGrpc(WithInfo(absl::InvalidArgumentError(text),
                          {.reason = Reason::kBadField, .field = "filter", .numbers = {}}));
      EXPECT_LT(on_the_wire(out), 7500u) << size << " of " << absl::CHexEscape(quoted);
      google::rpc::Status rich;
      ASSERT_TRUE(rich.ParseFromString(out.error_details()));
      EXPECT_EQ(out.error_message().substr(0, 7), "state.\"");
      if (size <= 100) EXPECT_EQ(out.error_message().find("bytes in all"), std::string::npos);
    }
  }
}

TEST(ToGrpc, ManyHoldersDoNotHideTheError) {
  const absl::Status status = WithInfo(absl::ResourceExhaustedError("full"),
                                       {.reason = Reason::kDeviceFull, .field = "", .numbers = {}});
  engine::AdmissionReport report;
  report.device = "devices/0";
  for (int i = 0; i < 1000; ++i) {
    report.holders.push_back(
        {.name = absl::StrCat("volumes/abcdefgh-0123456789abcdef0123456789abc", i),
         .kind = model::HolderKind::kHeldVolume,
         .bytes = 1000 - i});
  }
  const grpc::Status out = ToGrpc(status, &report);
  EXPECT_LT(out.error_details().size(), 4000u) << "clients take 8 KiB of trailers, in base64";
  google::rpc::Status rich;
  ASSERT_TRUE(rich.ParseFromString(out.error_details()));
  google::rpc::ErrorInfo detail;
  v1::AdmissionReport encoded;
  ASSERT_TRUE(rich.details(0).UnpackTo(&detail) && rich.details(3).UnpackTo(&encoded));
  EXPECT_EQ(detail.reason(), "DEVICE_FULL");
  ASSERT_GT(encoded.holders_size(), 5);
  EXPECT_EQ(encoded.holders(0).bytes(), 1000) << "the largest stay";
  EXPECT_EQ(encoded.holders_left_out(), 1000 - encoded.holders_size());
  int64_t bytes = encoded.bytes_left_out(), of_all = 0;
  for (const auto& holder : encoded.holders()) bytes += holder.bytes();
  for (const auto& holder : report.holders) of_all += holder.bytes;
  EXPECT_EQ(bytes, of_all);
}

TEST(ConvertSubscribe, VolumesByReadNeedVolumes) {
  v1::SubscribeRequest request;
  request.set_volumes_by_read(true);
  for (const bool mip : {false, true}) {  // MIP is the default
    if (mip) request.add_products(v1::PRODUCT_MIP);
    const auto refused = DecodeSubscribe(request).status();
    EXPECT_THAT(refused, IsError(absl::StatusCode::kInvalidArgument,
                                 "volumes_by_read: is set, but products have no VOLUME"));
    EXPECT_EQ(InfoOf(refused).field, "volumes_by_read");
  }
  request.add_products(v1::PRODUCT_VOLUME);
  auto options = DecodeSubscribe(request);
  ASSERT_THAT(options, IsOk());
  EXPECT_TRUE(options->spec.volumes_by_read);
  request.clear_volumes_by_read();
  options = DecodeSubscribe(request);
  ASSERT_THAT(options, IsOk());
  EXPECT_FALSE(options->spec.volumes_by_read);
}

TEST(ConvertSubscribe, WithoutADeliveryEachProductHasItsOwn) {
  using enum engine::Product;
  using enum engine::Delivery;
  v1::SubscribeRequest request;
  for (const v1::Product product : {v1::PRODUCT_MIP, v1::PRODUCT_VOLUME, v1::PRODUCT_EVENT})
    request.add_products(product);
  request.set_max_rate_hz(10);  // of the images
  const auto mixed = DecodeSubscribe(request);
  ASSERT_THAT(mixed, IsOk());
  EXPECT_EQ(mixed->spec.DeliveryOf(kMip), kLatest);
  EXPECT_EQ(mixed->spec.DeliveryOf(kVolume), kLossless);
  EXPECT_EQ(mixed->spec.DeliveryOf(kEvent), kLossless);
  EXPECT_EQ(mixed->spec.QueueLengthOf(kMip), 16);
  EXPECT_EQ(mixed->spec.QueueLengthOf(kVolume), 2);
  EXPECT_EQ(mixed->spec.QueueLengthOf(kEvent), 256);
  request.set_delivery(v1::DELIVERY_DROP_OLDEST);
  request.set_queue_length(7);
  const auto given = DecodeSubscribe(request);
  ASSERT_THAT(given, IsOk());
  for (const engine::Product product : {kMip, kVolume, kEvent}) {
    EXPECT_EQ(given->spec.DeliveryOf(product), kDropOldest);
    EXPECT_EQ(given->spec.QueueLengthOf(product), 7);
  }
}

// A bool of a oneof is a choice by itself: false chooses nothing.
TEST(ConvertBuffer, AChoiceThatIsFalseIsRefused) {
  const auto refused = [](const absl::Status& status, const std::string& field) {
    EXPECT_THAT(status, IsError(absl::StatusCode::kInvalidArgument, field + ": is false"));
    EXPECT_EQ(InfoOf(status).field, field);
  };
  v1::WriteBufferRequest::Header write;
  write.mutable_target()->set_all(false);
  refused(DecodeWriteHeader(write).status(), "header.target.all");
  write.mutable_target()->set_all(true);
  EXPECT_TRUE(DecodeWriteHeader(write)->all);
  v1::ReadBufferRequest read;
  read.mutable_selector()->set_any(false);
  refused(DecodeRead(read).status(), "selector.any");
  read.mutable_selector()->set_stacked(false);
  refused(DecodeRead(read).status(), "selector.stacked");
  using Which = engine::BufferReadSpec::Which;
  read.mutable_selector()->set_stacked(true);
  EXPECT_EQ(DecodeRead(read)->which, Which::kStacked);
  read.mutable_selector()->set_replica(0);
  EXPECT_EQ(DecodeRead(read)->which, Which::kReplica);
  read.clear_selector();
  EXPECT_EQ(DecodeRead(read)->which, Which::kAny);
  v1::ScanSpec scan;
  Filler(2).Fill(&scan);
  auto* positions = scan.mutable_processing()->mutable_k_linearisation();
  positions->set_none(false);
  refused(DecodeScanSpec(scan).status(), "processing.k_linearisation.none");
  positions->set_from_source(false);
  refused(DecodeScanSpec(scan).status(), "processing.k_linearisation.from_source");
}

TEST(ConvertVolume, TheWireNamesEveryMove) {
  for (const auto& [move, value] :
       {std::pair(model::Move::kNone, v1::VOLUME_MOVE_UNSPECIFIED),
        std::pair(model::Move::kSpilling, v1::VOLUME_MOVE_SPILLING),
        std::pair(model::Move::kRestoring, v1::VOLUME_MOVE_RESTORING),
        std::pair(model::Move::kRelocating, v1::VOLUME_MOVE_RELOCATING)}) {
    model::VolumeStatus volume;
    volume.moving = move;
    v1::Volume wire;
    EncodeVolume(volume, &wire);
    EXPECT_EQ(wire.moving(), value);
  }
}

// The model's names go into files; the contract's are the same in capital letters.
TEST(ConvertVolume, TheWireNamesEveryQuantity) {
  for (int q = 0; q < v1::Quantity_ARRAYSIZE; ++q) {
    const auto quantity = static_cast<model::Quantity>(q);
    model::VolumeStatus volume;
    volume.quantity = quantity;
    v1::Volume wire;
    EncodeVolume(volume, &wire);
    EXPECT_EQ(wire.value(), q == 0 ? v1::VALUE_DB : v1::VALUE_UNSPECIFIED) << "one of the two";
    const std::string name = absl::AsciiStrToLower(v1::Quantity_Name(wire.quantity()));
    EXPECT_EQ(name, q == 0 ? "quantity_unspecified" : absl::StrCat("quantity_", Name(quantity)));
    EXPECT_EQ(model::QuantityNamed(Name(quantity)), quantity);
  }
  EXPECT_EQ(model::QuantityNamed("loudness"), std::nullopt);
}

TEST(ConvertVolume, TheWireSaysWhatASpacingCounts) {
  for (const auto& [assumed, inverse, unit] :
       {std::tuple(false, false, v1::SPACING_UNIT_MICROMETRE),
        std::tuple(true, false, v1::SPACING_UNIT_SAMPLE),
        std::tuple(false, true, v1::SPACING_UNIT_PER_MICROMETRE),
        std::tuple(true, true, v1::SPACING_UNIT_PER_SAMPLE)}) {
    model::VolumeStatus volume;
    volume.spacing_assumed[1] = assumed;
    volume.spacing_inverse[1] = inverse;
    v1::Volume wire;
    EncodeVolume(volume, &wire);
    ASSERT_EQ(wire.spacing_units_size(), 3);
    EXPECT_EQ(wire.spacing_units(0), v1::SPACING_UNIT_MICROMETRE);
    EXPECT_EQ(wire.spacing_units(1), unit);
  }
}

TEST(ConvertVolume, TheSourceSaysWhatItsChainsDidNotMake) {
  model::VolumeStatus volume;
  volume.skipped_chains = {
      {.chain = "mip", .reason_code = Reason::kDeviceFull, .reason = "no room"}};
  v1::Volume wire;
  EncodeVolume(volume, &wire);
  ASSERT_EQ(wire.skipped_chains_size(), 1);
  EXPECT_EQ(wire.skipped_chains(0).chain(), "mip");
  EXPECT_EQ(wire.skipped_chains(0).reason_code(), v1::REASON_DEVICE_FULL);
  EXPECT_EQ(wire.skipped_chains(0).reason(), "no room");
}

TEST(ConvertVolume, TheParentIsTheJobElseTheScan) {
  model::VolumeStatus volume;
  volume.scan = "scans/a";
  v1::Volume wire;
  EncodeVolume(volume, &wire);
  EXPECT_EQ(wire.parent(), "scans/a");
  volume.job = "jobs/b";
  EncodeVolume(volume, &wire);
  EXPECT_EQ(wire.parent(), "jobs/b");
}

// tests/reasons_test.py compares the two lists; this, that each reason arrives as itself.
TEST(ConvertReason, EveryReasonIsItsValue) {
  EXPECT_EQ(EncodeReason(Reason::kNone), v1::REASON_UNSPECIFIED);
  const auto* values = v1::Reason_descriptor();
  for (int i = 1; i < values->value_count(); ++i) {
    const std::string& name = values->value(i)->name();
    const std::optional<Reason> reason = ReasonNamed(absl::StripPrefix(name, "REASON_"));
    ASSERT_TRUE(reason.has_value()) << name;
    EXPECT_EQ(v1::Reason_Name(EncodeReason(*reason)), name);
  }
}

TEST(ConvertReason, AnErrorWithoutOneHasThatOfItsCode) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "x");
    if (absl::IsUnauthenticated(status)) continue;  // nothing sends it
    EXPECT_EQ(Name(ReasonOrCode(status)), absl::StatusCodeToString(status.code()));
    EXPECT_NE(EncodeReason(ReasonOrCode(status)), v1::REASON_UNSPECIFIED) << status;
  }
}

// What an update of one field takes over is what the contract has in that field, and nothing else.
TEST(MergeProcessing, TakesTheFieldsOfTheContract) {
  using google::protobuf::util::MessageDifferencer;
  const auto* descriptor = v1::Processing::descriptor();
  std::vector<std::string> names;
  for (int i = 0; i < descriptor->field_count(); ++i) names.push_back(descriptor->field(i)->name());
  const auto only_field = [&](const v1::Processing& of, int i) {
    v1::Processing one = of;
    for (int k = 0; k < descriptor->field_count(); ++k)
      if (k != i) one.GetReflection()->ClearField(&one, descriptor->field(k));
    return one;
  };
  v1::Processing ours, theirs;
  Filler(11).Fill(&ours);
  const auto differs_everywhere = [&] {
    for (int i = 0; i < descriptor->field_count(); ++i)
      if (MessageDifferencer::Equals(only_field(ours, i), only_field(theirs, i))) return false;
    return true;
  };
  uint32_t seed = 12;
  do {  // an enum has few values, and two messages often the same one
    theirs.Clear();
    Filler(seed++).Fill(&theirs);
  } while (!differs_everywhere());
  EXPECT_THAT(processing::ProcessingFields(), ::testing::UnorderedElementsAreArray(names));
  ASSERT_OK_AND_ASSIGN(const model::Processing from, DecodeProcessing(theirs));
  ASSERT_OK_AND_ASSIGN(const model::Processing into, DecodeProcessing(ours));
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    v1::Processing wanted = ours, merged;
    wanted.GetReflection()->ClearField(&wanted, field);
    wanted.MergeFrom(only_field(theirs, i));
    ASSERT_OK_AND_ASSIGN(const model::Processing as_wanted, DecodeProcessing(wanted));
    v1::Processing told;
    EncodeProcessing(as_wanted, &told);
    EncodeProcessing(processing::MergeProcessing(into, from, {field->name()}), &merged);
    EXPECT_TRUE(MessageDifferencer::Equals(merged, told)) << field->name();
    v1::Processing unchanged;
    EncodeProcessing(into, &unchanged);
    EXPECT_FALSE(MessageDifferencer::Equals(merged, unchanged)) << field->name();
  }
}

TEST(ConvertHolder, TheWireNamesEveryKind) {
  using Kind = v1::AdmissionReport::Holder::Kind;
  for (int k = 1; k < v1::AdmissionReport::Holder::Kind_ARRAYSIZE; ++k) {
    const std::string name =
        absl::AsciiStrToLower(v1::AdmissionReport::Holder::Kind_Name(static_cast<Kind>(k)));
    EXPECT_EQ(name,
              absl::StrCat("kind_", absl::StrReplaceAll(Name(static_cast<model::HolderKind>(k)),
                                                        {{" ", "_"}})));
  }
}

TEST(ConvertJob, TheWireNamesEveryKind) {
  for (int k = 1; k < v1::JobKind_ARRAYSIZE; ++k) {
    EXPECT_EQ(absl::AsciiStrToLower(v1::JobKind_Name(static_cast<v1::JobKind>(k))),
              absl::StrCat("job_kind_", Name(static_cast<job::JobKind>(k))));
  }
}

}  // namespace
}  // namespace octavo::rpc

#include "gpu/device/operators.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/array/array_ops.h"
#include "gpu/array/coarsen.h"
#include "gpu/array/elements.h"
#include "gpu/array/extremes.h"
#include "gpu/array/filters.h"
#include "gpu/array/flat_field.h"
#include "gpu/array/gather_ascans.h"
#include "gpu/array/motion_contrast.h"
#include "gpu/array/project.h"
#include "gpu/array/quantise.h"
#include "gpu/array/scatter.h"
#include "gpu/array/surface.h"
#include "gpu/array/warp.h"
#include "gpu/mosaic/mosaic_ops.h"
#include "gpu/spectral/spectral.h"
#include "gpu/tomography/preprocess_ops.h"
#include "gpu/tomography/reconstruct_kernels.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/device/forwarding_device.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;

/// A family of operators that no backend implements.
class UnknownOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"unheard-of things"};
};

/// A device of a backend that does not exist and therefore implements no operators.
class OtherDevice final : public testing::ForwardingDevice {
 public:
  OtherDevice(Device& inner, std::string backend) : ForwardingDevice(inner), info_(inner.info()) {
    info_.backend = std::move(backend);
  }
  const DeviceInfo& info() const override { return info_; }
  Operators* FindOperators(const OperatorFamily&) override { return nullptr; }

 private:
  DeviceInfo info_;
};

class OperatorsTest : public testing::BackendTest {
 protected:
  template <class Ops>
  void ExpectFamily() {
    const absl::StatusOr<Ops*> ops = FindOperators<Ops>(device_);
    ASSERT_TRUE(ops.ok()) << ops.status();
    ASSERT_NE(*ops, nullptr);
    EXPECT_EQ(*FindOperators<Ops>(device_), *ops) << "the device keeps one set";
    EXPECT_NE(dynamic_cast<Ops*>(device_.FindOperators(Ops::kFamily)), nullptr);
  }
};

TEST_P(OperatorsTest, EveryBackendHasEveryFamily) {
  ExpectFamily<SpectralOps>();
  ExpectFamily<ProjectOps>();
  ExpectFamily<CoarsenOps>();
  ExpectFamily<QuantiseOps>();
  ExpectFamily<ResampleOps>();
  ExpectFamily<RepeatOps>();
  ExpectFamily<ArrayOps>();
  ExpectFamily<ElementOps>();
  ExpectFamily<ExtremeOps>();
  ExpectFamily<FilterOps>();
  ExpectFamily<ScatterOps>();
  ExpectFamily<SurfaceOps>();
  ExpectFamily<FlatFieldOps>();
  ExpectFamily<WarpOps>();
  ExpectFamily<TomographyOps>();
  ExpectFamily<PrepareOps>();
  ExpectFamily<SinogramOps>();
  ExpectFamily<MosaicOps>();
}

TEST_P(OperatorsTest, AFamilyWithoutATwinIsNamed) {
  EXPECT_EQ(device_.FindOperators(UnknownOps::kFamily), nullptr);
  const absl::Status status = FindOperators<UnknownOps>(device_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "the backend " + GetParam() +
                                  " of devices/0 has no operators of the family unheard-of things");
}

TEST_P(OperatorsTest, WhatNeedsAMissingFamilySaysSo) {
  OtherDevice device(device_, "abacus");
  const VolumeView volume{.data = this, .dtype = DType::kU8, .shape = {1, 1, 1}};
  const absl::Status status = ExtractPlane(stream_.ref(), device, volume, Axis::kZ, 0, this);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("abacus"));
  EXPECT_THAT(status.message(), HasSubstr(ProjectOps::kFamily.name));
}

TEST_P(OperatorsTest, TheHostsTwinsAreForHostDevicesAlone) {
  OtherDevice other(device_, "abacus");
  const absl::Status status = host::MakeSpectralOps(other).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "operators of the family spectral chain for the backend host cannot be made for "
            "devices/0 of the backend abacus");
  EXPECT_EQ(host::MakeProjectOps(device_).ok(), GetParam() == "host");
  EXPECT_EQ(host::MakeArrayOps(device_).ok(), GetParam() == "host");
  EXPECT_EQ(host::MakeSinogramOps(device_).ok(), GetParam() == "host");
  EXPECT_EQ(host::MakeMosaicOps(device_).ok(), GetParam() == "host");
}

INSTANTIATE_TEST_SUITE_P(Backends, OperatorsTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

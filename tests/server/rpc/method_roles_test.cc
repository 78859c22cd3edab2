#include "server/rpc/transport/method_roles.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

#include "octavo/v1/access.pb.h"
#include "octavo/v1/buffer.pb.h"
#include "octavo/v1/export.pb.h"
#include "octavo/v1/ingest.pb.h"
#include "octavo/v1/job.pb.h"
#include "octavo/v1/mosaic.pb.h"
#include "octavo/v1/operation.pb.h"
#include "octavo/v1/scan.pb.h"
#include "octavo/v1/session.pb.h"
#include "octavo/v1/stream.pb.h"
#include "octavo/v1/system.pb.h"
#include "octavo/v1/volume.pb.h"

namespace octavo::rpc {
namespace {

// Every method of the contract: of the files that have services.
std::set<const google::protobuf::MethodDescriptor*> AllMethods() {
  std::set<const google::protobuf::MethodDescriptor*> methods;
  for (const auto* message :
       {v1::ApplyOpRequest::descriptor(), v1::ExportRequest::descriptor(),
        v1::PushRequest::descriptor(), v1::SubmitJobRequest::descriptor(),
        v1::StitchTilesRequest::descriptor(), v1::GetOperationRequest::descriptor(),
        v1::SubmitScanRequest::descriptor(), v1::OpenSessionRequest::descriptor(),
        v1::SubscribeRequest::descriptor(), v1::GetInfoRequest::descriptor(),
        v1::GetVolumeRequest::descriptor(), v1::CreateGrantRequest::descriptor()}) {
    const auto* file = message->file();
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m)
        methods.insert(file->service(s)->method(m));
    }
  }
  return methods;
}

TEST(MethodRoles, EveryMethodHasALine) {
  const auto methods = AllMethods();
  EXPECT_GT(methods.size(), 60u);
  for (const auto* method : methods) {
    const MethodRole* const line = RoleFor(method->input_type());
    ASSERT_NE(line, nullptr) << method->full_name() << " needs a line in method_roles.cc";
    EXPECT_EQ(line->method, method->full_name());
    EXPECT_NE(line->role, security::Role::kNone) << method->full_name();
  }
}

TEST(MethodRoles, EveryLineHasAMethod) {
  std::set<std::string> known, lines;
  for (const auto* method : AllMethods()) known.insert(method->full_name());
  for (const MethodRole& line : MethodRoles()) {
    EXPECT_TRUE(known.contains(std::string(line.method))) << line.method;
    EXPECT_TRUE(lines.insert(std::string(line.method)).second) << line.method << " comes twice";
  }
  EXPECT_EQ(lines, known);
}

TEST(MethodRoles, AViewerChangesNothing) {
  for (const MethodRole& line : MethodRoles()) {
    const std::string name(line.method.substr(line.method.rfind('.') + 1));
    bool sees = name == "Subscribe" || name == "OpenFrames" || name == "RenderVolume";
    for (const char* verb : {"Get", "List", "Watch", "Wait", "Read"})
      sees = sees || name.rfind(verb, 0) == 0;
    EXPECT_EQ(line.role == security::Role::kViewer, sees) << line.method;
  }
}

// Whatever may change something has a line in the audit log; a new method for operators is one of
// these unless it is named here, with a reason.
TEST(MethodRoles, WhatOnlyAsksIsKnownByName) {
  const std::set<std::string> only_asks = {
      "PlanScan",     "PlanJob",      "PlanWaveform",   // plans are kept nowhere
      "PlotWaveform", "FindZOverlap", "RegisterTiles",  // answers
      "KeepAlive",    "RenewLease"};                    // sessions and leases stay as they are
  for (const MethodRole& line : MethodRoles()) {
    const std::string name(line.method.substr(line.method.rfind('.') + 1));
    const bool asks = line.role == security::Role::kViewer || only_asks.contains(name);
    EXPECT_EQ(line.effect == Effect::kAsks, asks) << line.method;
  }
}

TEST(MethodRoles, ARequestOfNoMethodHasNone) {
  EXPECT_EQ(RoleFor(v1::GetInfoResponse::descriptor()), nullptr);
  EXPECT_EQ(RoleFor(nullptr), nullptr);
}

}  // namespace
}  // namespace octavo::rpc

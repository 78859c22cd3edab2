#include "server/security/tls_failures.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo::security {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

TEST(TlsFailuresTest, KnowsWhatOpenSslSays) {
  const std::pair<const char*, TlsFailure> cases[] = {
      {"error:0A00010B:SSL routines::wrong version number", TlsFailure::kPlainText},
      {"error:0A00009C:SSL routines::http request", TlsFailure::kPlainText},
      {"error:0A0000C7:SSL routines::peer did not return a certificate",
       TlsFailure::kNoCertificate},
      {"error:0A000086:SSL routines::certificate verify failed", TlsFailure::kBadCertificate},
      {"error:0A000418:SSL routines::tlsv1 alert unknown ca", TlsFailure::kRefused},
      {"error:0A000102:SSL routines::unsupported protocol", TlsFailure::kVersion},
      {"error:0A0000C1:SSL routines::no shared cipher", TlsFailure::kVersion},
      {"", TlsFailure::kOther},
  };
  for (const auto& [error, failure] : cases) EXPECT_EQ(TlsFailureOf(error), failure) << error;
}

TEST(TlsFailuresTest, ManyFailuresAreFewRecords) {
  TlsFailures failures;
  CaptureStderr();
  failures.LogSome(0);
  EXPECT_EQ(GetCapturedStderr(), "");
  for (int i = 0; i < 1000; ++i) failures.Note(TlsFailure::kPlainText);
  failures.Note(TlsFailure::kNoCertificate);
  CaptureStderr();
  failures.LogSome(100);
  EXPECT_EQ(GetCapturedStderr(), "");  // it is not known yet who has left
  for (int i = 0; i < 100; ++i) failures.NoteLeft("192.0.2.7:" + std::to_string(i));
  CaptureStderr();
  failures.LogSome(100.5);
  const std::string first = GetCapturedStderr();
  EXPECT_THAT(first, HasSubstr("1000 x the client does not speak TLS"));
  EXPECT_THAT(first, HasSubstr("1 x the client gave no certificate"));
  EXPECT_THAT(first, HasSubstr("192.0.2.7:99"));
  EXPECT_LT(first.size(), 2000u);
  failures.Note(TlsFailure::kOther);
  CaptureStderr();
  for (double now = 101; now < 110; now += 0.5) failures.LogSome(now);
  EXPECT_EQ(GetCapturedStderr(), "");
  CaptureStderr();
  for (double now = 110.5; now < 130; now += 0.5) failures.LogSome(now);
  const std::string second = GetCapturedStderr();
  EXPECT_THAT(second, HasSubstr("1 x TLS failed otherwise"));
  EXPECT_EQ(second.find("connections failed"), second.rfind("connections failed"));
  EXPECT_EQ(failures.Count()[static_cast<size_t>(TlsFailure::kPlainText)], 1000);
}

// Whoever ends as they want is not suspected later.
TEST(TlsFailuresTest, OnlyThoseThatLeftThenAreNamed) {
  TlsFailures failures;
  failures.NoteLeft("192.0.2.1:1");
  failures.LogSome(0);
  failures.Note(TlsFailure::kRefused);
  failures.LogSome(1);
  failures.NoteLeft("192.0.2.2:2");
  CaptureStderr();
  failures.LogSome(2);
  const std::string record = GetCapturedStderr();
  EXPECT_THAT(record, HasSubstr("192.0.2.2:2"));
  EXPECT_EQ(record.find("192.0.2.1:1"), std::string::npos);
}

}  // namespace
}  // namespace octavo::security

#include "server/session/client_sessions.h"

#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::IsOk;

class ClientSessionsTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  ClientSessions sessions_{&clock_, {.heartbeat_seconds = 10, .expiry_seconds = 60}, "testtest"};
};

TEST_F(ClientSessionsTest, ASessionLivesAsLongAsItGivesSigns) {
  ASSERT_OK_AND_ASSIGN(const auto opened, sessions_.Open("microscope"));
  EXPECT_EQ(opened.session.name.rfind("sessions/testtest-", 0), 0u);
  EXPECT_EQ(opened.secret.size(), 32u);
  for (int i = 0; i < 20; ++i) {
    clock_.Advance(59);
    ASSERT_OK_AND_ASSIGN(const auto alive, sessions_.KeepAlive(opened.secret));
    EXPECT_FALSE(alive.revived);
    EXPECT_NEAR(alive.session.expires_seconds, 60, 1e-6);
  }
  EXPECT_FALSE(sessions_.Gone(opened.session.name));
  EXPECT_TRUE(sessions_.Expire().empty());
  clock_.Advance(61);
  EXPECT_TRUE(sessions_.Gone(opened.session.name));
  EXPECT_EQ(sessions_.Expire(), std::vector<std::string>{opened.session.name});
  EXPECT_TRUE(sessions_.Expire().empty()) << "told once";
  EXPECT_THAT(sessions_.Find(opened.secret),
              IsError(absl::StatusCode::kNotFound, "KeepAlive revives it"));
  EXPECT_EQ(sessions_.Count().expired, 1);
}

TEST_F(ClientSessionsTest, TheSecretRevivesForADay) {
  ASSERT_OK_AND_ASSIGN(const auto opened, sessions_.Open("a"));
  clock_.Advance(3600);
  EXPECT_EQ(sessions_.Expire().size(), 1u);
  ASSERT_OK_AND_ASSIGN(const auto alive, sessions_.KeepAlive(opened.secret));
  EXPECT_TRUE(alive.revived);
  EXPECT_FALSE(sessions_.Gone(opened.session.name));
  clock_.Advance(61);
  EXPECT_EQ(sessions_.Expire().size(), 1u) << "it ends again";
  clock_.Advance(25 * 3600);
  EXPECT_THAT(sessions_.KeepAlive(opened.secret),
              IsError(absl::StatusCode::kNotFound, "no session has this secret"));
  EXPECT_TRUE(sessions_.Gone(opened.session.name));
  EXPECT_TRUE(sessions_.List().empty());
}

TEST_F(ClientSessionsTest, CloseEndsAtOnce) {
  ASSERT_OK_AND_ASSIGN(const auto a, sessions_.Open("a"));
  ASSERT_OK_AND_ASSIGN(const auto b, sessions_.Open("b"));
  EXPECT_NE(a.secret, b.secret);
  EXPECT_THAT(sessions_.Close(a.secret), IsOk());
  EXPECT_TRUE(sessions_.Gone(a.session.name));
  EXPECT_THAT(sessions_.Find(a.secret), IsError(absl::StatusCode::kNotFound, "was closed"));
  EXPECT_FALSE(sessions_.Gone(b.session.name));
  EXPECT_EQ(sessions_.Expire(), std::vector<std::string>{a.session.name});
  EXPECT_EQ(sessions_.Count().alive, 1);
  EXPECT_EQ(InfoOf(sessions_.Find("no such secret").status()).reason, Reason::kNoSession);
  EXPECT_EQ(sessions_.List().size(), 2u);
}

// A secret alone is not enough: the session is its owner's.
TEST_F(ClientSessionsTest, ASessionIsItsOwners) {
  ASSERT_OK_AND_ASSIGN(const auto opened,
                       sessions_.Open("a", {.name = "ada", .project = "retina"}));
  EXPECT_EQ(sessions_.List()[0].owner.project, "retina");
  const security::Principal ada{.name = "ada", .proof = security::Proof::kToken};
  const security::Principal bob{.name = "bob", .proof = security::Proof::kToken};
  clock_.Advance(50);
  for (const absl::Status& refused : {sessions_.KeepAlive(opened.secret, &bob).status(),
                                      sessions_.Close(opened.secret, &bob).status(),
                                      sessions_.Find(opened.secret, &bob).status()}) {
    EXPECT_THAT(refused, IsError(absl::StatusCode::kPermissionDenied, "belongs to ada"));
    EXPECT_EQ(InfoOf(refused).reason, Reason::kNotOwner);
  }
  EXPECT_NEAR(sessions_.List()[0].expires_seconds, 10, 1e-6) << "no sign of life";
  EXPECT_THAT(sessions_.KeepAlive(opened.secret, &ada), IsOk());
  EXPECT_THAT(sessions_.Find(opened.secret), IsOk()) << "the server itself";
  EXPECT_THAT(sessions_.Close(opened.secret, &ada), IsOk());
}

TEST(ClientSessions, APrincipalHasHalfOfThePlaces) {
  FakeClock clock;
  ClientSessions sessions(&clock, {.heartbeat_seconds = 10, .expiry_seconds = 60, .most = 7}, "t");
  const security::Owner ada{.name = "ada", .role = security::Role::kOperator};
  const security::Owner bob{.name = "bob", .role = security::Role::kOperator};
  const security::Owner root{.name = "root", .role = security::Role::kAdmin};
  std::vector<std::string> secrets;
  for (int i = 0; i < 4; ++i) {
    ASSERT_OK_AND_ASSIGN(const auto opened, sessions.Open("a", ada));
    secrets.push_back(opened.secret);
  }
  const absl::Status refused = sessions.Open("a", ada).status();
  EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted,
                               "ada has 4 sessions open; allowed to one principal is half of "
                               "session.most = 7; close some"));
  EXPECT_EQ(InfoOf(refused).reason, Reason::kSessions);
  EXPECT_THAT(sessions.Open("b", bob), IsOk()) << "others have the rest";
  // A session that has ended gives its place back, and takes one when it is revived.
  EXPECT_THAT(sessions.Close(secrets[0]), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto again, sessions.Open("a", ada));
  EXPECT_THAT(sessions.KeepAlive(secrets[0]),
              IsError(absl::StatusCode::kResourceExhausted, "ada has 4 sessions"));
  EXPECT_THAT(sessions.Close(again.secret), IsOk());
  EXPECT_THAT(sessions.KeepAlive(secrets[0]), IsOk());
  EXPECT_FALSE(sessions.Open("a", ada).ok());
  clock.Advance(61);  // all expire
  for (int i = 0; i < 7; ++i) EXPECT_THAT(sessions.Open("r", root), IsOk()) << "an admin";
  EXPECT_THAT(sessions.Open("a", ada),
              IsError(absl::StatusCode::kResourceExhausted, "7 sessions are open"));
  clock.Advance(61);
  EXPECT_THAT(sessions.Open("a", ada), IsOk());
}

}  // namespace
}  // namespace octavo::engine

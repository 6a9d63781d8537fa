"""The port `CookieJars`: cookies as in RFC 6265, changed by several processes at once, and bounded."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from http.cookies import SimpleCookie

import pytest
from sqlalchemy import Float, delete, literal, select, update

from gateway.exchange.cookies import MemoryCookieJars
from gateway.model import Principal, Secret
from gateway.ports.cookies import ANY_SITE, COOKIES, SENT, CookieJars, JarKey
from gateway.stores.cookie_jars import IDLE, USED, DatabaseCookieJars, reseal_jars
from gateway.stores.schema import COOKIE_JARS
from gateway.stores.sealing import GivenKeys, KeyRing, new_key
from gateway.stores.sql import Database
from tests.clock import Clock

KEY = JarKey("idp||ann", "cart", "https://shop.test", "", None)
URL = "https://shop.test/v2/api/items"

Open = Callable[..., CookieJars]
"""Opens the jars of a gateway with these bounds."""


@pytest.fixture
def clock() -> Clock:
    """The time of uses; cookies expire by the time of day."""
    clock = Clock()
    clock.now = time.time()
    return clock


@pytest.fixture
def opening(shared: Database | None, ring: KeyRing, clock: Clock) -> Open:
    """Each implementation, without a jar."""

    def open_jars(**bounds: int) -> CookieJars:
        if shared is None:
            return MemoryCookieJars(**bounds)
        return DatabaseCookieJars(shared, ring, **bounds, now=lambda _: literal(clock.now, Float))

    return open_jars


@pytest.fixture
def jars(opening: Open) -> CookieJars:
    """The jars with the bounds of a gateway."""
    return opening()


async def sent(jars: CookieJars, key: JarKey = KEY, url: str = URL) -> str | None:
    """Return the cookie field of a request."""
    return dict((await jars.load(key)).field(url, time.time())).get("cookie")


@pytest.mark.parametrize(
    ("field", "url", "expected"),
    [
        ("a=1", URL, "a=1"),
        ("a=1; Path=/v2", "https://shop.test/v2/other", "a=1"),
        ("a=1; Path=/v2", "https://shop.test/v22", None),
        ("a=1; Path=/v2/", "https://shop.test/v2", None),
        ("a=1; Path=/v2/", "https://shop.test/v2/x", "a=1"),
        ("a=1; Path=/", "https://shop.test", "a=1"),
        ("a=1; Path=v2", "https://shop.test/v2/api", "a=1"),
        ("a=1", "https://shop.test/v2/else", None),
        ("a=1; Max-Age=0", URL, None),
        ("a=1; Max-Age=-1", URL, None),
        ("a=1; Max-Age=0; Expires=Fri, 31 Dec 9999 23:59:59 GMT", URL, None),
        ("a=1; Max-Age=" + "9" * 400, URL, "a=1"),
        ("a=1; Max-Age=soon", URL, "a=1"),
        ("a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", URL, None),
        ("a=1; expires=Thu, 01-Jan-70 00:00:00 GMT; Path=/", URL, None),
        ("a=1; Expires=Thu Jan  1 00:00:01 1970", URL, None),
        ("a=1; Expires=Sun, 06-Nov-94 08:49:37 GMT", URL, None),
        ("a=1; Expires=Thu, 32 Jan 1970 00:00:00 GMT", URL, "a=1"),
        ("a=1; Expires=never", URL, "a=1"),
        ("a=1; Max-Age=3600", URL, "a=1"),
        ("a=1; Expires=Fri, 31 Dec 9999 23:59:59 GMT", URL, "a=1"),
        ("a=1; Secure", URL, "a=1"),
        ("a=1; Secure", URL.replace("https", "wss"), "a=1"),
        ("a=1; Secure", URL.replace("https", "http"), None),
        ("a=1; Domain=shop.test", URL, None),
        ("a=1; domain = .test", URL, None),
        ("a=1; Domain=.test; Domain=", URL, None),
        ("a=1; Domain=", URL, "a=1"),
        ('a="x y\\"z"', URL, 'a="x y\\"z"'),
        ("a=ab==/+", URL, "a=ab==/+"),
        (" a = 1 ;x", URL, "a=1"),
        ("a=", URL, "a="),
        ("a=ü", URL, None),
        ("a=" + "x" * 5000, URL, None),
        ("a=1\r\nx: y", URL, None),
        ("a=1; Path=/\x00", URL, None),
        ("=1", URL, None),
        ("a", URL, None),
        ("", URL, None),
    ],
)
async def test_as_rfc_6265_says(jars: CookieJars, field: str, url: str, expected: str | None) -> None:
    """Path, Expires, Max-Age and Secure; host-only; values byte for byte."""
    await jars.keep(KEY, URL, [field])
    assert await sent(jars, url=url) == expected


async def test_a_cookie_is_replaced_and_deleted(jars: CookieJars) -> None:
    """By the next one of its name, path and host."""
    for field in ("a=1", "b=2", "a=3", "b=; Max-Age=0"):
        await jars.keep(KEY, URL, [field])
    assert await sent(jars) == "a=3"


async def test_longer_paths_come_first(jars: CookieJars) -> None:
    """RFC 6265, 5.4."""
    await jars.keep(KEY, URL, ["a=all; Path=/", "a=items; Path=/v2/api/items", "a=api; Path=/v2/api"])
    assert await sent(jars) == "a=items; a=api; a=all"


async def test_a_cookie_expires(jars: CookieJars) -> None:
    """After its age, by the time of day."""
    jar = await jars.keep(KEY, URL, ["a=1; Max-Age=60", "b=2"])
    assert dict(jar.field(URL, time.time() + 30))["cookie"] == "a=1; b=2"
    assert dict(jar.field(URL, time.time() + 90))["cookie"] == "b=2"


async def test_every_attribute_is_kept(jars: CookieJars) -> None:
    """Of scripts and of other sites, from one request to the next."""
    await jars.keep(KEY, URL, ['a="s3cr\\"et-of-ann"; HttpOnly; SameSite=Strict', "b=2; SameSite=None", "c=3"])
    jar = await jars.load(KEY)
    assert jar.visible(URL, time.time()) == "b=2; c=3"
    assert jar.secrets() == ['"s3cr\\"et-of-ann"', 's3cr"et-of-ann']
    assert dict(jar.field(URL, time.time(), frozenset({"none"})))["cookie"] == "b=2"
    assert dict(jar.field(URL, time.time(), ANY_SITE - {"strict"}))["cookie"] == "b=2; c=3"


async def test_scripts_reach_no_hidden_cookie(jars: CookieJars) -> None:
    """They neither make nor replace one that is `HttpOnly`, in whichever path."""
    await jars.keep(KEY, URL, ["session=s3cret; HttpOnly; Path=/"])
    await jars.keep(KEY, URL, ["session=mine", "session=; Max-Age=0; Path=/", "new=1; httponly", "b=2"], of_page=True)
    assert await sent(jars) == "b=2; session=s3cret"
    assert (await jars.load(KEY)).visible(URL, time.time()) == "b=2"


async def test_other_origins_and_credentials_have_other_jars(jars: CookieJars) -> None:
    """A new account of a credential starts without the old one's cookies."""
    await jars.keep(KEY, URL, ["a=1"])
    for other in (
        replace(KEY, principal="idp||bob"),
        replace(KEY, origin="http://shop.test"),
        replace(KEY, credential="shop\n2"),
        replace(KEY, app="notes"),
        replace(KEY, view="v1"),
        replace(KEY, view=""),
    ):
        assert await sent(jars, other) is None


async def test_concurrent_answers_are_merged(jars: CookieJars) -> None:
    """Each sets a cookie of its own: none is lost, and the later of two values stays."""
    await jars.keep(KEY, URL, ["shared=0"])
    await asyncio.gather(*[jars.keep(KEY, URL, [f"c{number}=x", f"shared={number}"]) for number in range(12)])
    cookies = SimpleCookie(await sent(jars) or "")
    assert {*cookies} == {"shared", *(f"c{number}" for number in range(12))}


async def test_a_person_is_logged_out(jars: CookieJars) -> None:
    """At all of their clients; the cookies of others stay."""
    people = [Principal("idp", client, subject) for subject in ("ann", "bob") for client in "xy"]
    keys = [replace(KEY, principal=one.id) for one in people]
    for key in keys:
        await jars.keep(key, URL, ["a=1"])
    await jars.empty_person(Principal("idp", "z", "ann").person)
    assert [await sent(jars, key) for key in keys] == [None, None, "a=1", "a=1"]


async def test_an_account_is_revoked(jars: CookieJars) -> None:
    """Only its own cookies are deleted."""
    other = replace(KEY, credential="shop\n1")
    for key in (KEY, other):
        await jars.keep(key, URL, ["a=1"])
    await jars.empty_person("idp|ann", "shop\n1")
    assert [await sent(jars, key) for key in (KEY, other)] == ["a=1", None]


async def test_the_number_of_cookies_is_bounded(jars: CookieJars) -> None:
    """Those that were set longest ago are evicted, and a field is no longer than servers read."""
    await jars.keep(KEY, URL, ["first=1", "second=2"])
    await jars.keep(KEY, URL, ["first=3", *(f"c{number}=x" for number in range(COOKIES - 1))])
    assert len((await jars.load(KEY)).cookies) == COOKIES
    assert (await sent(jars) or "").startswith("first=3; c0=x")
    await jars.keep(KEY, URL, [f"long{number}={'x' * 4000}" for number in range(5)])
    assert len(await sent(jars) or "") <= SENT


@pytest.mark.bound("cookie jars")
async def test_nobody_empties_the_jars_of_others(opening: Open, clock: Clock) -> None:
    """The jars of one principal are bounded; in a full table, the principal with most loses one to a newcomer."""
    jars = opening(each=3, most=4)
    ann, bob = replace(KEY, principal="idp||ann"), replace(KEY, principal="idp||bob")
    await jars.keep(ann, URL, ["a=1"])
    churned = [replace(KEY, principal="idp||shared", view=f"view {number}") for number in range(8)]
    for key in churned:
        clock.now += 1
        await jars.keep(key, URL, ["a=1"])
    assert [bool(await sent(jars, key)) for key in churned] == [*[False] * 5, True, True, True]
    await jars.keep(bob, URL, ["a=1"])
    assert [await sent(jars, key) for key in (ann, bob)] == ["a=1", "a=1"]
    assert sum([bool(await sent(jars, key)) for key in churned]) == 2


@pytest.mark.parametrize("shared", ["sqlite", "postgresql"], indirect=True)
async def test_jars_beyond_the_bound_are_evicted_together(shared: Database, ring: KeyRing) -> None:
    """Several processes may each have added the last one."""
    names = [replace(KEY, principal="idp||shared", view=f"view {number}") for number in range(4)]
    for key in names:
        await DatabaseCookieJars(shared, ring).keep(key, URL, ["a=1"])
    jars = DatabaseCookieJars(shared, ring, most=2)
    await jars.keep(KEY, URL, ["a=1"])
    assert [bool(await sent(jars, key)) for key in (*names, KEY)] == [False, False, False, True, True]


async def test_the_least_recently_used_jar_is_evicted(opening: Open, clock: Clock) -> None:
    """A jar whose cookies are only sent is in use, too."""
    jars = opening(each=2)
    keys = [replace(KEY, app=name) for name in "abc"]
    for key in keys:
        await jars.keep(key, URL, ["a=1"])
        clock.now += USED + 1
        await jars.load(keys[0])
        clock.now += 1
    assert [bool(await sent(jars, key)) for key in keys] == [True, False, True]


async def test_two_processes_share_and_merge(database: Database, other_database: Database, ring: KeyRing) -> None:
    """What one has stored the other one sends; a logout at one is one at both."""
    here, there = DatabaseCookieJars(database, ring), DatabaseCookieJars(other_database, ring)
    await asyncio.gather(
        *[jars.keep(KEY, URL, [f"c{number}=x"]) for number in range(6) for jars in (here, there)],
        *[there.keep(KEY, URL, [f"d{number}=x"]) for number in range(6)],
    )
    assert len((await here.load(KEY)).cookies) == 12
    assert await here.load(KEY) == await there.load(KEY)
    await there.empty_person("idp|ann")
    assert await sent(here) is None


async def test_an_idle_jar_is_deleted(database: Database, ring: KeyRing) -> None:
    """When the next new one is stored."""
    jars = DatabaseCookieJars(database, ring)
    await jars.keep(KEY, URL, ["a=1"])
    async with database.connect() as connection:
        await connection.execute(update(COOKIE_JARS).values(used=time.time() - IDLE - 60))
        await connection.commit()
    await jars.keep(replace(KEY, app="notes"), URL, ["a=1"])
    async with database.connect() as connection:
        assert len((await connection.execute(select(COOKIE_JARS.c.key))).all()) == 1


async def test_a_jar_that_was_written_into_the_database_is_empty(database: Database, ring: KeyRing) -> None:
    """Neither one of other keys, nor that of somebody else; and no cookie is readable there."""
    jars = DatabaseCookieJars(database, ring)
    bob = replace(KEY, principal="idp||bob")
    await jars.keep(KEY, URL, ["a=s3cr3t-of-ann"])
    await jars.keep(bob, URL, ["a=s3cr3t-of-bob"])
    async with database.connect() as connection:
        rows = {row.principal: row for row in await connection.execute(select(COOKIE_JARS))}
        stolen = {"seal": rows[KEY.principal].seal, "state": rows[KEY.principal].state}
        await connection.execute(update(COOKIE_JARS).where(COOKIE_JARS.c.principal == bob.principal).values(stolen))
        await connection.commit()
    assert "s3cr3t" not in str(rows)
    assert [await sent(jars, key) for key in (KEY, bob)] == ["a=s3cr3t-of-ann", None]
    foreign = DatabaseCookieJars(database, KeyRing(GivenKeys("KEYS", Secret(new_key()))))
    assert await sent(foreign) is None
    await jars.keep(bob, URL, ["b=2"])
    assert await sent(jars, bob) == "b=2"


async def test_a_new_key_seals_all_jars(database: Database) -> None:
    """The old one can be removed then."""
    old, new = new_key(), new_key()
    await DatabaseCookieJars(database, KeyRing(GivenKeys("KEYS", Secret(old)))).keep(KEY, URL, ["a=1"])
    await reseal_jars(database, KeyRing(GivenKeys("KEYS", Secret(f"{new} {old}"))))
    assert await sent(DatabaseCookieJars(database, KeyRing(GivenKeys("KEYS", Secret(new))))) == "a=1"


async def test_without_the_database_nothing_is_known(database: Database, ring: KeyRing) -> None:
    """Each method raises OSError: a jar that cannot be read is not an empty one."""
    jars = DatabaseCookieJars(database, ring)
    async with database.connect() as connection:
        await connection.execute(delete(COOKIE_JARS))
        await connection.commit()
        await connection.exec_driver_sql("ALTER TABLE cookie_jars RENAME TO cookie_jars_away")
        await connection.commit()
    try:
        for work in (jars.load(KEY), jars.keep(KEY, URL, ["a=1"]), jars.empty_person("idp|ann")):
            with pytest.raises(OSError, match="the database cannot be used"):
                await work
    finally:
        async with database.connect() as connection:
            await connection.exec_driver_sql("ALTER TABLE cookie_jars_away RENAME TO cookie_jars")
            await connection.commit()

<?php
// Notes with Laravel: sessions, the CSRF token of its forms, and its XSRF-TOKEN cookie, which scripts send back in a field.
// Run by `php -S ADDRESS laravel_notes.php`: a request each; notes are kept in the session.
require '/usr/share/php/Illuminate/autoload.php';

use Illuminate\Config\Repository;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Http\Kernel as HttpKernel;
use Illuminate\Cookie\Middleware\{AddQueuedCookiesToResponse, EncryptCookies};
use Illuminate\Foundation\Application;
use Illuminate\Foundation\Exceptions\Handler;
use Illuminate\Foundation\Http\{Kernel, Middleware\VerifyCsrfToken};
use Illuminate\Http\Request;
use Illuminate\Routing\Middleware\SubstituteBindings;
use Illuminate\Session\Middleware\StartSession;
use Illuminate\Support\Facades\{Facade, Route};

$folder = sys_get_temp_dir() . '/laravel-notes-' . $_SERVER['SERVER_PORT'];
foreach (['bootstrap/cache', 'storage/sessions'] as $part) {
    if (!is_dir("$folder/$part")) mkdir("$folder/$part", 0700, true);
}

class CsrfToken extends VerifyCsrfToken
{
    // Laravel passes over the check in its own tests alone.
    protected $except = [];
}

class NotesHandler extends Handler
{
    public function render($request, Throwable $error)
    {
        $status = $error instanceof Illuminate\Session\TokenMismatchException ? 419 : 500;
        return new Illuminate\Http\Response("<h1>$status</h1>", $status);
    }
}

class NotesKernel extends Kernel
{
    protected $bootstrappers = [
        Illuminate\Foundation\Bootstrap\HandleExceptions::class,
        Illuminate\Foundation\Bootstrap\RegisterFacades::class,
        Illuminate\Foundation\Bootstrap\RegisterProviders::class,
        Illuminate\Foundation\Bootstrap\BootProviders::class,
    ];
    protected $middlewareGroups = ['web' => [
        EncryptCookies::class, AddQueuedCookiesToResponse::class, StartSession::class, CsrfToken::class, SubstituteBindings::class,
    ]];
}

$app = new Application($folder);
$app->instance('config', new Repository([
    'app' => ['name' => 'notes', 'env' => 'local', 'debug' => false, 'key' => str_repeat('k', 32), 'cipher' => 'AES-256-CBC', 'timezone' => 'UTC', 'locale' => 'en', 'fallback_locale' => 'en', 'aliases' => [], 'providers' => [
        Illuminate\Cookie\CookieServiceProvider::class, Illuminate\Encryption\EncryptionServiceProvider::class,
        Illuminate\Filesystem\FilesystemServiceProvider::class, Illuminate\Session\SessionServiceProvider::class,
        Illuminate\View\ViewServiceProvider::class,
    ]],
    'session' => ['driver' => 'file', 'files' => "$folder/storage/sessions", 'lifetime' => 120, 'expire_on_close' => false, 'encrypt' => false, 'lottery' => [0, 100], 'cookie' => 'notes_session', 'path' => '/', 'domain' => null, 'secure' => false, 'http_only' => true, 'same_site' => 'lax'],
    'view' => ['paths' => [], 'compiled' => "$folder/storage"],
    'logging' => ['default' => 'null', 'channels' => ['null' => ['driver' => 'monolog', 'handler' => Monolog\Handler\NullHandler::class]]],
]));
$app->detectEnvironment(fn () => 'local');
$app->singleton(HttpKernel::class, NotesKernel::class);
$app->singleton(ExceptionHandler::class, NotesHandler::class);
$kernel = $app->make(HttpKernel::class);
$kernel->bootstrap();

function page(string $title): string
{
    $notes = implode('', array_map(fn ($note) => '<li>' . e($note) . '</li>', session('notes', [])));
    $flash = session('said') ? '<p class="flash">' . e(session('said')) . '</p>' : '';
    $token = csrf_token();
    return <<<HTML
    <!doctype html><html><head><title>$title</title><script>console.log("page " + document.title)</script></head><body><h1>$title</h1>$flash<ul>$notes</ul>
    <form id="note" method="post" action="/notes"><input type="hidden" name="_token" value="$token"><input name="text"><button>note</button></form>
    <form id="clear" method="post" action="/notes"><input type="hidden" name="_method" value="DELETE"><input type="hidden" name="_token" value="$token"><button>clear</button></form>
    <form id="forged" method="post" action="/notes"><input name="text" value="forged"><button>forged</button></form>
    <button id="like">like</button><b id="likes"></b>
    <script>
    // As axios does it: the cookie goes back in a field.
    document.getElementById("like").onclick = async () => {
      const [, token] = /XSRF-TOKEN=([^;]*)/.exec(document.cookie);
      const post = (headers) => fetch("/like", { method: "POST", headers: { accept: "application/json", ...headers } });
      const [good, bad] = [await post({ "X-XSRF-TOKEN": decodeURIComponent(token) }), await post({})];
      document.getElementById("likes").textContent = good.status + " " + (await good.json()).likes + " " + bad.status;
    };
    </script></body></html>
    HTML;
}

$arrived = "$folder/arrived";
Route::middleware('web')->group(function () {
    Route::get('/', fn () => page('Notes'));
    Route::post('/notes', function (Request $request) {
        session()->push('notes', $request->input('text'));
        return redirect('/', 303)->with('said', 'Noted');
    });
    Route::delete('/notes', function () {
        session()->forget('notes');
        return redirect('/', 303)->with('said', 'Cleared');
    });
    Route::post('/like', fn () => ['likes' => count(session('notes', []))]);
});
Route::get('/arrived', function () use ($arrived) {
    $told = is_file($arrived) ? array_map('json_decode', file($arrived)) : [];
    @unlink($arrived);
    return response()->json($told);
});

$request = Request::capture();
$response = $kernel->handle($request);
if (!in_array($request->path(), ['arrived', 'favicon.ico'])) {
    $cookies = array_keys($_COOKIE);
    sort($cookies);
    file_put_contents($arrived, json_encode([$request->method(), $request->path(), $cookies, $request->hasHeader('x-xsrf-token')]) . "\n", FILE_APPEND);
}
$response->send();
$kernel->terminate($request, $response);

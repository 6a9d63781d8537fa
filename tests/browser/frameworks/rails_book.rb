# A guest book with Rails: import maps, Turbo and Stimulus, forms with its CSRF tokens. Prints its port.
require "rails"
require "action_controller/railtie"
require "socket"
require "json"
require "webrick"
INTEROP = ARGV[0]
GUESTS = []
ARRIVED = []
class Book < Rails::Application
  config.load_defaults 6.1
  config.eager_load = false
  config.consider_all_requests_local = true
  config.secret_key_base = "a key of these tests" * 4
  config.logger = Logger.new(nil)
  config.hosts.clear
  config.action_controller.allow_forgery_protection = true
  config.session_store :cookie_store, key: "_book"
end
class BooksController < ActionController::Base
  protect_from_forgery with: :exception
  before_action { ARRIVED << [request.request_method, request.path, cookies.to_h.keys.sort, request.headers["X-CSRF-Token"].present?] unless request.path == "/arrived" }
  LAYOUT = <<~ERB
    <!DOCTYPE html><html><head><title><%= @title %></title><%= csrf_meta_tags %>
    <script type="importmap" data-turbo-track="reload">{"imports": {"application": "/js/application.js", "@hotwired/turbo": "/js/turbo.js", "@hotwired/stimulus": "/js/stimulus.js", "controllers/": "/js/controllers/"}}</script>
    <link rel="modulepreload" href="/js/application.js"><link rel="modulepreload" href="/js/turbo.js">
    <script type="module">import "application"</script></head>
    <body><h1><%= @title %></h1><% if flash[:notice] %><p id="flash"><%= flash[:notice] %></p><% end %>
    <ul><% GUESTS.each do |one| %><li><%= one %></li><% end %></ul>
    <%= form_with(url: "/sign", id: "sign", local: true) do |form| %><%= form.text_field :guest %><%= form.submit "sign" %><% end %>
    <%= form_with(url: "/last", method: :delete, id: "drop", local: true) do |form| %><%= form.submit "drop" %><% end %>
    <div data-controller="hello"><input id="name" data-hello-target="name"><button id="greet" data-action="hello#greet">greet</button><b id="output" data-hello-target="output"></b></div>
    <a id="about" href="/about">about</a> <a id="book" href="/">book</a></body></html>
  ERB
  def index = show("Guest book")
  def about = show("About")
  def sign
    GUESTS << params[:guest]
    redirect_to "/", notice: "Signed by #{params[:guest]}", status: 303
  end
  def drop
    GUESTS.pop
    redirect_to "/", notice: "Dropped", status: 303
  end
  def greet = render(json: { text: "Hello, #{params[:name]}, by #{request.headers['X-CSRF-Token'].present?}" })
  def arrived
    told = ARRIVED.dup
    ARRIVED.clear
    GUESTS.clear
    render json: told
  end
  private def show(title)
    @title = title
    render inline: LAYOUT
  end
end
JS = {
  "application.js" => 'import "@hotwired/turbo"; import { Application } from "@hotwired/stimulus"; import Hello from "controllers/hello_controller.js"; window.realms = (window.realms || 0) + 1; const application = Application.start(); application.register("hello", Hello); console.log("page " + document.title);',
  "controllers/hello_controller.js" => <<~JS2,
    import { Controller } from "@hotwired/stimulus"
    export default class extends Controller {
      static targets = ["name", "output"]
      async greet() {
        const token = document.querySelector("meta[name=csrf-token]").content
        const answer = await fetch("/greet", { method: "POST", headers: { "X-CSRF-Token": token, "content-type": "application/json" }, body: JSON.stringify({ name: this.nameTarget.value }) })
        this.outputTarget.textContent = (await answer.json()).text
      }
    }
  JS2
  "turbo.js" => File.read("#{INTEROP}/node_modules/@hotwired/turbo/dist/turbo.es2017-esm.js"),
  "stimulus.js" => File.read("#{INTEROP}/node_modules/@hotwired/stimulus/dist/stimulus.js"),
}
Rails.application.initialize!
Rails.application.routes.draw do
  root "books#index"
  get "/about" => "books#about"
  post "/sign" => "books#sign"
  delete "/last" => "books#drop"
  post "/greet" => "books#greet"
  get "/arrived" => "books#arrived"
  get "/js/*name", to: ->(env) { name = env["PATH_INFO"].delete_prefix("/js/"); JS[name] ? [200, { "Content-Type" => "text/javascript" }, [JS[name]]] : [404, {}, []] }, format: false
end
require "rack/handler/webrick"
socket = TCPServer.new("127.0.0.1", 0)
port = socket.addr[1]
socket.close
Rack::Handler::WEBrick.run(Rails.application, Host: "127.0.0.1", Port: port, AccessLog: [], Logger: WEBrick::Log.new(nil, 0), StartCallback: -> { puts port; $stdout.flush })

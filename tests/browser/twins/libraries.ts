/** The libraries that pages of others use, as one script. */
import { QueryClient } from "@tanstack/query-core";
import axios from "axios";
import { gql, GraphQLClient } from "graphql-request";
import { hc } from "hono/client";
import htmx from "htmx.org";
import jQuery from "jquery";
import ky from "ky";

Object.assign(window, { libraries: { axios, gql, GraphQLClient, hc, htmx, jQuery, ky, QueryClient } });

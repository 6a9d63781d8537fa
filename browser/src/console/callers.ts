/** The page's model calls of tools of the shown view. */
import type { Model, ToolResult } from "./model";
import type { Stage } from "./story";
import type { JsonObject, LiveView, ViewTool } from "./types";

/** The shown view, and all live views, since another window may show another one of the same app. */
export interface Target {
  view: string;
  app: string;
  views: readonly LiveView[];
}

export function toolsOf({ view, views }: Target): readonly ViewTool[] {
  return views.find((live) => live.id === view)?.tools ?? [];
}

/** By the model's name for the tool; by the view's handle if several views have it. */
export function callTool(
  model: Model,
  target: Target,
  tool: ViewTool,
  args: JsonObject,
  signal: AbortSignal,
): Promise<ToolResult> {
  const alone = target.views.filter((live) => live.app === target.app).length === 1;
  if (alone) return model.callTool(tool.name, args, { signal, schema: tool.input_schema });
  return model.callTool("call_view_tool", { view: target.view, tool: tool.page_name, arguments: args }, { signal });
}

/** The stage of a story: `target` is evaluated at each step. */
export function stageOf(model: () => Model, target: () => Target): Stage {
  return {
    list: (signal) => model().listTools(signal),
    call(pageName, args, signal) {
      const tool = toolsOf(target()).find((one) => one.page_name === pageName);
      if (!tool) return Promise.reject(new Error(`The page does not offer ${pageName} any more.`));
      return callTool(model(), target(), tool, args, signal);
    },
  };
}

import { state } from "../shared.js"; state.count += 10;
export default "hello"; export const hello = () => "hello " + state.count;
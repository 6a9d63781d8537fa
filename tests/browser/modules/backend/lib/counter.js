export let count = 0;
export const bump = () => { count += 1; };
export class Shape { constructor(side) { this.area = side * side; } }
const odd = "odd name";
export { odd as "a b" };
export default function () { return count * 2; }

export default class { static name2 = 1 }
export const { x, y: [z] } = { x: 1, y: [2] };
seen.push("app runs once");
